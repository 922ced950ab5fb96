from __future__ import annotations

import pytest

from mar_st.index import FilterError, parse_filter
from mar_st.index.documents import Documents, DocumentWriter, Stored

FIELDS = {
    "department": "string",
    "year": "integer",
    "score": "number",
    "checked": "boolean",
    "date": "string",
}

ROWS = [
    {"department": "心内科", "year": 2020, "score": 1.5, "checked": True, "date": "2024-01-31"},
    {"department": "儿科", "year": 2021, "score": 2, "checked": False},
    {"department": "a=b,c", "year": 2022, "date": "2023-12-01"},
    {},
    {"department": "心内科", "year": 2023, "score": -1.0, "checked": True, "date": "2024-02-01"},
]


@pytest.fixture
def documents(tmp_path):
    writer = DocumentWriter(tmp_path)
    for number, metadata in enumerate(ROWS):
        writer.add(Stored(str(number), "", "text", metadata))
    assert writer.close() == FIELDS
    return Documents(tmp_path)


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ({"department": "心内科"}, [0, 4]),
        ({"department": ["儿科", "心内科"]}, [0, 1, 4]),
        ({"department": "心内科", "year": {"gt": 2020}}, [4]),
        ({"year": {"gte": 2021, "lt": 2023}}, [1, 2]),
        ({"year": {"gt": 2020.5, "lte": 2022.0}}, [1, 2]),
        ({"year": [2020.0, 2023, 7.5]}, [0, 4]),
        ({"score": {"lt": 2}}, [0, 4]),
        ({"score": 2}, [1]),
        ({"checked": True}, [0, 4]),
        ({"checked": [True, False]}, [0, 1, 4]),
        ({"date": {"gte": "2024-01-01", "lt": "2024-02"}}, [0]),
        ({"department": "nowhere"}, []),
        ("department=心内科|儿科, year>=2021", [1, 4]),
        ("year>2020,year<=2022", [1, 2]),
        ("score=-1", [4]),
        ("checked=false", [1]),
        ("date>=2024", [0, 4]),
        ('{"department": "a=b,c"}', [2]),
    ],
)
def test_filters_select_the_matching_documents(documents, where, rows):
    mask = documents.mask(parse_filter(where).typed(FIELDS))
    assert mask.nonzero()[0].tolist() == rows


@pytest.mark.parametrize("nothing", [None, {}, "", " , ", "{}"])
def test_no_conditions_give_no_filter(nothing):
    assert parse_filter(nothing) is None


def test_the_order_of_conditions_does_not_change_a_filter():
    one = parse_filter({"year": {"lt": 3, "gte": 1}, "department": "x"})
    other = parse_filter({"department": ["x"], "year": {"gte": 1, "lt": 3}})
    assert one == other
    assert hash(one) == hash(other)
    assert parse_filter(one) is one


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (3, "mapping"),
        (["year"], "mapping"),
        ({"year": {}}, "takes gte"),
        ({"year": {"above": 3}}, "'above'"),
        ({"year": []}, "lists 0 values"),
        ({"year": None}, "None"),
        ({"year": float("nan")}, "nan"),
        ({"year": {"gt": [1]}}, "'year' is compared with a value of type list"),
        ({"year": [1, None]}, "'year' is compared with None"),
        ({"year": 2**70}, "compared with"),
        ({"year": 2**63}, "compared with"),
        ({"year": -(2**63) - 1}, "compared with"),
        ({"department": "a\ud800"}, "is not valid Unicode"),
        ({"": 1}, "must be strings"),
        ({3: 1}, "must be strings"),
        ({str(number): 1 for number in range(65)}, "at most 64"),
        ({"year": list(range(10_001))}, "10001 values"),
        ("year", "not a condition"),
        ("year==3", "not a condition"),
        ("=3", "not a condition"),
        ("year=", "not a condition"),
        ("year=1,year=2", "twice"),
        ("year>1,year>2", "twice"),
        ("year=1,year>2", "twice"),
        ("{year: 1}", "not valid JSON"),
    ],
)
def test_bad_filters_are_refused(where, message):
    with pytest.raises(FilterError, match=message.replace("[", r"\[")):
        parse_filter(where)


@pytest.mark.parametrize("flags", [[True, 1], [1, True], [False, 0.0]])
def test_a_number_does_not_pass_for_an_equal_boolean(flags):
    with pytest.raises(FilterError, match="of type boolean"):
        parse_filter({"checked": flags}).typed({"checked": "boolean"})
    with pytest.raises(FilterError, match="of type number"):
        parse_filter({"score": flags}).typed({"score": "number"})


def test_the_largest_filter_is_accepted():
    conditions = parse_filter({str(number): list(range(10_000)) for number in range(64)}).conditions
    assert len(conditions) == 64
    assert {len(condition.any_of) for condition in conditions} == {10_000}
    twice = parse_filter({"year": [3, 1, 3]}).conditions
    assert [condition.any_of for condition in twice] == [(3, 1)]


@pytest.mark.parametrize(
    ("where", "impossible"),
    [
        ({"year": 2.5}, True),
        ({"year": [2.5, 2]}, False),
        ({"year": {"gt": 2**63 - 1}}, True),
        ({"year": {"gte": 2**63 - 1}}, False),
        ({"year": {"lt": -(2**63)}}, True),
        ({"department": "x", "year": 2.5}, True),
        ({"department": "x"}, False),
    ],
)
def test_filters_that_no_document_can_match_are_marked_impossible(where, impossible):
    assert parse_filter(where).typed(FIELDS).impossible is impossible


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"departmnt": "x"}, "Did you mean 'department'"),
        ({"colour": "x"}, "It has checked, date, department, score, year"),
        ({"year": "2020"}, "of type integer"),
        ({"department": 3}, "of type string"),
        ({"checked": 1}, "of type boolean"),
        ({"year": True}, "of type integer"),
        ({"checked": {"gt": True}}, "cannot be filtered by a range"),
        ("year=soon", "of type integer"),
        ("checked=maybe", "of type boolean"),
    ],
)
def test_filters_that_do_not_fit_the_index_are_refused(where, message):
    with pytest.raises(FilterError, match=message):
        parse_filter(where).typed(FIELDS)


LARGE = [2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, 123456789012345678, 123456789012345679, 2**63 - 1, -(2**63)]


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    writer = DocumentWriter(folder)
    for number, value in enumerate(LARGE):
        writer.add(Stored(str(number), "", "", {"number": value, "mixed": value}))
    writer.add(Stored("without", "", "", {"mixed": 0.5}))
    assert writer.close() == {"number": "integer", "mixed": "number"}
    return Documents(folder)


def passing(documents, where):
    typed = parse_filter(where).typed({"number": "integer", "mixed": "number"})
    assert typed.typed({"number": "integer", "mixed": "number"}) == typed
    return documents.mask(typed).nonzero()[0].tolist()


@pytest.mark.parametrize("value", LARGE)
def test_every_integer_of_64_bits_finds_itself(large, value):
    place = LARGE.index(value)
    assert passing(large, {"number": value}) == [place]
    assert passing(large, {"number": [value, 0.5, 1e300]}) == [place]
    assert passing(large, f"number={value}") == [place]
    assert passing(large, {"number": {"gte": value, "lte": value}}) == [place]
    # In a field with fractions, integers are rounded like those of the documents.
    assert place in passing(large, {"mixed": value})


BOUNDS = [*LARGE, 2.5, -2.5, 9007199254740993.0, 1e18 + 0.0, 9.3e18, -9.3e18, 1e300, -1e300, 2.0**63]


@pytest.mark.parametrize("bound", BOUNDS)
def test_bounds_of_integers_may_be_any_number(large, bound):
    for name in ("gt", "gte", "lt", "lte"):
        wanted = [
            place
            for place, value in enumerate(LARGE)
            # Python compares integers and floats by their true values.
            if {"gt": value > bound, "gte": value >= bound, "lt": value < bound, "lte": value <= bound}[name]
        ]
        assert passing(large, {"number": {name: bound}}) == wanted, name


def test_text_beyond_64_bits_finds_nothing_or_all(large):
    everything = list(range(len(LARGE)))
    assert passing(large, "number=99999999999999999999") == []
    assert passing(large, "number<=" + "9" * 300) == everything
    assert passing(large, "number>-99999999999999999999") == everything
    with pytest.raises(FilterError, match="of type integer"):
        passing(large, "number<" + "9" * 5000)


def test_negative_zero_equals_zero(tmp_path):
    """Both filters are equal, so an open index remembers one result for both."""
    writer = DocumentWriter(tmp_path)
    for number, score in enumerate([0.0, -0.0, 1.5]):
        writer.add(Stored(str(number), "", "text", {"score": score}))
    assert writer.close() == {"score": "number"}
    documents = Documents(tmp_path)
    for where in ({"score": 0}, {"score": -0.0}, {"score": [-0.0, 7]}, "score=-0", "score=0|-0.0"):
        typed = parse_filter(where).typed({"score": "number"})
        assert documents.mask(typed).tolist() == [True, True, False]


def test_a_line_with_half_of_a_surrogate_pair_is_refused():
    with pytest.raises(FilterError, match="not valid Unicode"):
        parse_filter("department=\udc91")


def test_long_names_and_values_are_cut_in_messages():
    nested: list[object] = []
    for _ in range(5000):
        nested = [nested]
    for where in (
        {"year": nested},
        {"year": {"gt": nested}},
        {"y" * 10**6: 1},
        {"y" * 900: 1},
        {"year": "x" * 10**6},
        {"year": {"z" * 10**6: 1}},
        "y" * 10**6,
        "y" * 10**6 + "=1",
    ):
        with pytest.raises(FilterError) as caught:
            parse_filter(where).typed({"year": "integer"})
        assert len(str(caught.value)) < 300


def test_a_name_of_more_than_a_thousand_characters_is_refused():
    for where in ({"y" * 1001: 1}, "y" * 1001 + "=1"):
        with pytest.raises(FilterError, match="has 1001 characters; at most 1000"):
            parse_filter(where)
