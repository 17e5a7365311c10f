"""The page of an audit."""

import json
import re
from pathlib import Path


def data_of(audit):
    """What the script of the page reads."""
    page = Path(audit, "index.html").read_text("utf-8")
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
