"""Phones, e-mail addresses, accounts and web pages of persons; public numbers and sites stay."""

from __future__ import annotations

import time

import pytest

from medteb_mteb.curation.anonymize.contacts import Email, Landline, MessengerAccount, Phone, Url
from medteb_mteb.curation.anonymize.papers import Papers, RecordNumber


def values(kind, text):
    return sorted({text[one.start : one.end] for one in kind().analyze(text, [])})


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Phone, "手机13800138000，", "13800138000"),
        (Phone, "+86 138-0013-8000", "+86 138-0013-8000"),
        (Phone, "打一三八零零一三八零零零", "一三八零零一三八零零零"),
        (Phone, "call (212) 555-0147 now", "(212) 555-0147"),
        (Phone, "+44 20 7946 0958", "+44 20 7946 0958"),
        (Landline, "联系：0571-87654321转803", "0571-87654321转803"),
        (Landline, "科室电话：87654321", "87654321"),
        (MessengerAccount, "微信号：lixm_1992", "lixm_1992"),
        (MessengerAccount, "加QQ 123456789", "123456789"),
        (MessengerAccount, "zhang2020是我的微信", "zhang2020"),
    ],
)
def test_a_number_or_account_is_found_without_its_label(kind, text, value):
    assert values(kind, text) == [value]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Phone, "剂量13800138000mg，批号13800138000，1-800-555-0147，800-555-0147"),
        (Phone, "+999 12 3456 7890"),
        (Landline, "热线：400-123-4567，87654321，WBC 0571.8765"),
        (MessengerAccount, "微信公众号，微信支付，QQ群里说，账号和密码"),
    ],
)
def test_public_numbers_and_words_stay(kind, text):
    assert values(kind, text) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        *(("", ""), ("邮箱", "。"), ("邮箱-", "，"), ("邮箱：...", "..."), ("_", "_"), ("<", ">")),
        *(("发到", "谢谢"), ("mailto:", "?subject=x"), ("", "13800138000")),
    ],
)
def test_an_address_is_found_exactly_whatever_surrounds_it(before, after):
    for address in ("zhang.san@163.com", "a@mail.example.com.cn", "z+x_y-1@h2.example.org"):
        assert values(Email, before + address + after) == [address]


@pytest.mark.parametrize("text", ["@163.com", "zhang@", "zhang@163", "a @ b.com", "@" * 1000, "zhang@.com"])
def test_half_an_address_is_none(text):
    assert values(Email, text) == []


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/patients/zhang",
        "HTTPS://EXAMPLE.COM/USER/zhang",
        "https://example.com/?id=3",
        "https://example.com?patient=12345678",
        "https://zhang:secret@example.com",
        "https://weibo.com/zhangsan",
        "www.example.com/p/20210034",
    ],
)
def test_the_page_of_a_person_is_found(url):
    assert values(Url, f"见{url}，谢谢") == [url]


@pytest.mark.parametrize(
    "url",
    ["https://example.com", "https://example.com:8080", "http://example.com/", "www.example.com/about/us"],
)
def test_a_site_that_identifies_nobody_stays(url):
    assert values(Url, f"见{url}，谢谢") == []


@pytest.mark.parametrize(
    "piece", ["weixin", "wx-", "line-", "a.", "a@a.", "http://", "1-", "passport", "MRN-"]
)
def test_a_long_row_of_labels_takes_time_in_proportion(piece):
    text = piece * (100_000 // len(piece))
    start = time.process_time()
    for kind in (MessengerAccount, Url, Email, Phone, Landline, Papers, RecordNumber):
        values(kind, text)
    assert time.process_time() - start < 4
