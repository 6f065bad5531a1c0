"""``python -m spyker`` is ``spyker``."""

import sys

from spyker.cli.main import main

sys.exit(main())
