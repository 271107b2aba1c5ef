"""The one exception that users see."""


class UserError(Exception):
    """Something the user can mend: a file, a setting, a checkpoint, a missing package.

    The message is one sentence that names the thing, the value and the remedy. The command line prints it as
    ``byteseam: <message>`` and exits with code 2; a traceback never reaches the user.
    """
