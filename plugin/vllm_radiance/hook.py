# SPDX-License-Identifier: Apache-2.0
"""What one step of the installation found and did."""

ON, OFF, MISSING, FAILED, ABSENT = "on", "off", "not found", "failed", "not in this build"


class Status:
    def __init__(self, name, gate, state, text=""):
        self.name, self.gate, self.state, self.text = name, gate, state, text

    def line(self):
        return f"{self.name}: {self.state}" + (f" ({self.text})" if self.text else "")
