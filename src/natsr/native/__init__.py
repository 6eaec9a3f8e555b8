"""The step of a network in C, compiled where it runs: `natsr.native.build` makes it, `natsr.nets.native` uses it."""
