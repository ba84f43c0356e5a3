# SPDX-License-Identifier: Apache-2.0
"""python -m vllm_radiance doctor"""

import sys

from .doctor import main

sys.exit(main(sys.argv[1:]))
