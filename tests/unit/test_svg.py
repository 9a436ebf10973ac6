"""What drawings are made of."""

import xml.etree.ElementTree as xml

from tianji.observe import svg


def test_a_page_is_xml_whatever_the_words_are():
    page = svg.page(30, 20, [svg.text(1, 2.5, "a < b & c"), svg.rect(0, 0, 1.5, 2, "#ffffff")])
    root = xml.fromstring(page)
    assert (root.get("width"), root.get("height")) == ("30", "20")
    (words,) = root.iter("{http://www.w3.org/2000/svg}text")
    assert (words.text, words.get("x"), words.get("y")) == ("a < b & c", "1", "2.5")
