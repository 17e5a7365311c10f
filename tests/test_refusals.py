"""The golden list of refusals has no entry of a test that is gone."""

from support.refusals import listed


def test_every_sentence_is_of_a_test(request):
    tests = request.config.collected
    files = {test.partition("::")[0] for test in tests}  # whole, unless a test is named
    assert [test for test in listed() if test.partition("::")[0] in files and test not in tests] == []
