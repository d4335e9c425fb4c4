"""The HTML text of the viewer's page: complete in itself, with the document as plain data."""

from __future__ import annotations

import json
import math
import re

import pytest

from maze_pl.viewer.html_page import html_page
from tests.viewer.episode_documents import HOSTILE, document, plain_episode


def embedded(page: str) -> str:
    """Text of the element that holds the document."""
    found = re.search(r'<script type="application/json" id="document">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_document_is_embedded_without_a_character_of_markup() -> None:
    episode = plain_episode("hostile", 4)
    episode["events"]["attributes"] = list(HOSTILE[:2])
    given = document(episode, title="".join(HOSTILE))
    text = embedded(html_page(given))
    assert text.isascii()
    assert not set("<>&") & set(text)
    assert json.loads(text) == given


def test_numbers_that_json_lacks_become_null() -> None:
    episode = plain_episode("numbers", 4)
    episode["kpis"] = {"ratio": math.nan, "gap": -math.inf, "wins": 2.0}
    (shown,) = json.loads(embedded(html_page(document(episode))))["episodes"]
    assert shown["kpis"] == {"ratio": None, "gap": None, "wins": 2.0}


def test_the_page_refers_to_nothing_outside() -> None:
    page = html_page(document(plain_episode("one", 4)))
    assert "default-src &#x27;none&#x27;" in page
    assert "unsafe" not in page
    without_namespace = page.replace("http://www.w3.org/2000/svg", "")
    assert not re.findall(r"https?://|@import|url\(|<link rel=.stylesheet", without_namespace)
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", page)


def test_a_document_that_cannot_be_shown_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one episode"):
        html_page(document())
