"""Byte corpora, from any source to batches.

::

    sources, recipes  ->  prepare  ->  corpus  ->  batches
    (documents)           (shards)     (memory     (a pure function of corpus, seed, step, rank)
                                        maps)

`cache.resolve` walks the first half for a configuration and remembers the result. Only `batches` imports torch.
"""
