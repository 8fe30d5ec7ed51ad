"""Cofferdam for frameworks. Each module needs its extra: `pip install 'cofferdam[inspect]'` and so on."""
