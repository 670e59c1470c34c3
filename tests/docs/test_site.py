"""The documentation as it is built: no warning, links that lead somewhere, readable on a phone, nothing from other servers."""

import functools
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import noiseproof

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    for package in ("sphinx", "furo", "myst_nb", "sphinx_copybutton"):
        pytest.importorskip(package, reason="the documentation's packages are not installed; 'make docs' installs them")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-E", "-W", "--keep-going", "-b", "html", str(ROOT / "docs"), str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    return folder


class Page(HTMLParser):
    """What a page can be linked at, what it links to, and what it loads."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links, self.loaded, self.math = {""}, [], [], 0
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.anchors |= {found[key] for key in ("id", "name") if found.get(key)}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag in ("img", "script", "link", "iframe", "source"):
            self.loaded += [found[key] for key in ("src", "href") if found.get(key)]
        self.math += tag == "math"


@functools.cache
def read(path):
    return Page(path)


def pages(site):
    return sorted(path for path in site.rglob("*.html") if "_static" not in path.parts)


def test_every_page_of_the_folder_is_in_the_site_and_its_contents(site):
    docs = ROOT / "docs"
    names = {str(path.relative_to(docs).with_suffix("")) for kind in ("*.md", "*.ipynb") for path in docs.rglob(kind)}
    assert names <= {str(path.relative_to(site).with_suffix("")) for path in pages(site)}
    listed = {urlsplit(link).path for link in read(site / "index.html").links}
    assert {f"{name}.html" for name in names - {"index"}} <= listed


def test_links_within_the_site_lead_to_pages_and_anchors(site):
    checked = 0
    for path in pages(site):
        for link in read(path).links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.is_file(), f"{path.name} links to {link}"
            if parts.fragment and target.suffix == ".html":
                assert unquote(parts.fragment) in read(target).anchors, f"{path.name} links to {link}"
            checked += 1
    assert checked > 1000


def test_nothing_is_loaded_from_elsewhere(site):
    for path in pages(site):
        for place in read(path).loaded:
            parts = urlsplit(place)
            assert not parts.scheme, f"{path.name} loads {place}"
            assert not parts.netloc, f"{path.name} loads {place}"
            assert (path.parent / unquote(parts.path)).exists(), f"{path.name} loads {place}"


def test_every_loss_has_a_section_with_a_formula_and_curves(site):
    entries = noiseproof.list_losses()
    for family in {entry.cls.__module__.rpartition(".")[2] for entry in entries}:
        ours = [entry for entry in entries if entry.cls.__module__.endswith(f".{family}")]
        path = site / "reference" / "losses" / f"{family}.html"
        page = path.read_text(encoding="utf-8")
        assert [entry.name for entry in ours if f"<h2>{entry.name}: " not in page] == []
        assert page.count('<div class="curves">') == sum(entry.reads != "features" for entry in ours)
        assert page.count('<details class="entry">') == len(ours)
        assert read(path).math >= len(ours)


MAX_SCREENS, WIDTH, HEIGHT = 8, 1280, 900
ARTICLE_HEIGHT = "document.querySelector('article').getBoundingClientRect().height"
LONGER = {"reference/changelog.html": "one line for each change since the first release"}
"""Pages that may be longer, and why"""


def test_no_page_is_longer_than_eight_screens(site, browser):
    opened = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
    heights = {}
    for path in pages(site):
        if path.name != "search.html":
            opened.goto(path.as_uri())
            heights[path.relative_to(site).as_posix()] = opened.evaluate(ARTICLE_HEIGHT) / HEIGHT
    opened.close()
    assert len(heights) > 60
    assert {name: height for name, height in heights.items() if height > MAX_SCREENS and name not in LONGER} == {}


def test_titles_are_the_labels_of_the_navigation(site):
    text = (site / "index.html").read_text(encoding="utf-8")
    labels = re.findall(r'<li class="toctree-l\d[^>]*><a class="reference internal" href="([^"#]+\.html)">(.*?)</a>', text)
    assert len(labels) > 60
    for name, label in dict(labels).items():
        title = re.search(r"<h1>(.*?)<a class=", (site / name).read_text(encoding="utf-8"))
        assert title, name
        assert title[1] == label, name


TERMS = """
accuracy; active passive loss; asymmetric noise; annotator; augmentation; AUC; balanced accuracy; batch size;
benchmark; calibration; checkpoint; CIFAR-10; class imbalance; class weights; cleanlab; collapse onto the majority
class; confidence interval; confusion matrix; convergence; cross entropy; cross-validation; data augmentation; early
stopping; embeddings; encoder; epochs; F1; fine-tune; focal loss; gradient boosting; ground truth; held-out; Hugging
Face; hyperparameter; image classification; kNN; label errors; label noise; label smoothing; learning rate; logistic
regression; majority class; memorisation; minority class; mislabelled; MixUp; noise rate; noisy labels; outliers;
overfitting; oversampling; pretrained model; pseudo-labels; PyTorch; recall; regularisation; resume; robust loss;
scikit-learn; seed; segmentation; softmax; standard deviation; symmetric noise; temperature scaling; text
classification; train from scratch; transition matrix; tutorial; validation set; warm start; weight decay
"""


def words_of(term):
    return re.findall(r"[\w]+", term.lower())


def test_the_words_that_people_search_are_found(site):
    """By the index that the search reads, with its stemmer: a page must contain every word, as the search asks."""
    from sphinx.search.en import SearchEnglish

    text = (site / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    language = SearchEnglish({})
    terms = [" ".join(term.split()) for term in TERMS.split(";")]
    assert len(set(terms)) >= 60

    def pages_with(word):
        found = set()
        for stem in {word, language.stem(word)}:
            for part in (index["terms"], index["titleterms"]):
                at = part.get(stem, [])
                found |= {at} if isinstance(at, int) else set(at)
        return found

    def asked(word):
        return language.word_filter(word) and word not in language.stopwords

    missing = [term for term in terms if not set.intersection(*(pages_with(word) for word in words_of(term) if asked(word)))]
    assert not missing


CUT_OFF = """() => {
    const scrolls = (one) => ["auto", "scroll"].includes(getComputedStyle(one).overflowX);
    const reachable = (one) => one.tagName === "ARTICLE" ? false : scrolls(one) || reachable(one.parentElement);
    const wide = [...document.querySelectorAll("article *")].filter(
        (one) => one.getBoundingClientRect().right > innerWidth + 1 && one.getBoundingClientRect().width > 0);
    return wide.filter((one) => !reachable(one)).map((one) => one.outerHTML.slice(0, 120));
}"""
"""What is beyond the edge of the screen and in nothing that scrolls: the theme hides what is too wide, a page never scrolls."""


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_cut_off_at_the_edge_of_a_screen(site, browser, width):
    opened = browser.new_page(viewport={"width": width, "height": 900})
    problems = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    for path in pages(site):
        opened.goto(path.as_uri())
        assert not opened.evaluate(CUT_OFF), path.name
    opened.close()
    assert not problems
