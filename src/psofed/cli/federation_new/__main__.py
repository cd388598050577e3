"""``psofed federation …`` with the new commands, until they take the place of the old ones (then this file goes)."""

import sys

import psofed.cli
import psofed.cli.federation_new as new

sys.modules["psofed.cli.federation"] = new

if __name__ == "__main__":
    psofed.cli.main()
