"""`python -m tianji`: the same as the command `tianji`, where it is not on the path."""

import sys

from tianji.cli.main import main

sys.exit(main())
