"""Where answers and notices go."""


def test_an_answer_arrives_though_nobody_reads_the_notices(python):
    done = python(
        "-c",
        "import os\n"
        "read, write = os.pipe()\n"
        "os.dup2(write, 2), os.close(write), os.close(read)\n"
        "from byteseam.console import notice, stdout_json\n"
        "notice('in passing')\n"
        "stdout_json({'answer': 42})\n"
        "os._exit(0)",
    )
    assert done.stdout == '{"answer": 42}\n'
