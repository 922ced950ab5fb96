from __future__ import annotations

import pytest

from mar_st.data.corpus import Entry
from mar_st.index.documents import Documents, write_documents
from mar_st.index.filters import FilterError, parse_filter

FIELDS = {"department": "string", "year": "number", "score": "number", "checked": "boolean", "date": "string"}

ROWS = [
    {"department": "心内科", "year": 2020, "score": 1.5, "checked": True, "date": "2024-01-31"},
    {"department": "儿科", "year": 2021, "score": 2, "checked": False},
    {"department": "a=b,c", "year": 2022, "date": "2023-12-01"},
    {},
    {"department": "心内科", "year": 2023, "score": -1.0, "checked": True, "date": "2024-02-01"},
]


@pytest.fixture
def documents(tmp_path):
    types = write_documents(tmp_path, (Entry(str(n), "", "text", row) for n, row in enumerate(ROWS)))
    written = Documents(tmp_path)
    assert types == FIELDS
    assert [written[number] for number in range(5)] == [Entry(str(n), "", "text", ROWS[n]) for n in range(5)]
    return written


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
        ({"year": None}, "NoneType"),
        ({"year": float("nan")}, "nan"),
        ({"year": 10**400}, "compared with"),
        ({"department": "a\ud800"}, "compared with"),
        ({"": 1}, "are strings"),
        ({"y" * 1001: 1}, "of 1 to 1000 characters"),
        ({str(number): 1 for number in range(65)}, "at most 64"),
        ({"year": list(range(10_001))}, "10001 values"),
        ("year", "not a condition"),
        ("year=1,year=2", "twice"),
        ("{year: 1}", "cannot be read"),
    ],
)
def test_bad_filters_are_refused(where, message):
    with pytest.raises(FilterError, match=message):
        parse_filter(where)


@pytest.mark.parametrize("flags", [[True, 1], [1, True], [False, 0.0]])
def test_a_number_does_not_pass_for_an_equal_boolean(flags):
    with pytest.raises(FilterError, match="of type boolean"):
        parse_filter({"checked": flags}).typed({"checked": "boolean"})
    with pytest.raises(FilterError, match="of type number"):
        parse_filter({"score": flags}).typed({"score": "number"})


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"departmnt": "x"}, "Did you mean 'department'"),
        ({"colour": "x"}, "It has checked, date, department, score, year"),
        ({"year": "soon"}, "of type number"),
        ({"department": 3}, "of type string"),
        ({"checked": 1}, "of type boolean"),
        ({"checked": {"gt": True}}, "cannot be filtered by a range"),
    ],
)
def test_filters_that_do_not_fit_the_index_are_refused(where, message):
    with pytest.raises(FilterError, match=message):
        parse_filter(where).typed(FIELDS)


def test_negative_zero_equals_zero(tmp_path):
    """Both filters are equal, so an open index remembers one result for both."""
    rows = enumerate([0.0, -0.0, 1.5])
    write_documents(tmp_path, (Entry(str(number), "", "text", {"score": score}) for number, score in rows))
    documents = Documents(tmp_path)
    for where in ({"score": 0}, {"score": -0.0}, {"score": [-0.0, 7]}, "score=-0", "score=0|-0.0"):
        typed = parse_filter(where).typed({"score": "number"})
        assert documents.mask(typed).tolist() == [True, True, False]


def test_long_names_and_values_are_cut_in_messages():
    nested: list[object] = []
    for _ in range(5000):
        nested = [nested]
    for where in ({"year": nested}, {"y" * 900: 1}, {"year": "x" * 10**6}, "y" * 10**6 + "=1"):
        with pytest.raises(FilterError) as caught:
            parse_filter(where).typed({"year": "number"})
        assert len(str(caught.value)) < 300


def test_odd_values_of_a_field_of_numbers_pass_no_comparison_and_are_kept(tmp_path):
    rows = [{"year": "unknown" if number == 5 else 2000 + number} for number in range(20)]
    types = write_documents(tmp_path, (Entry(str(n), "", "x", row) for n, row in enumerate(rows)))
    documents = Documents(tmp_path)
    assert types == {"year": "number"}
    passed = documents.mask(parse_filter("year>=2004,year<2008").typed(types))
    assert passed.nonzero()[0].tolist() == [4, 6, 7]
    assert documents[5].metadata == {"year": "unknown"}
