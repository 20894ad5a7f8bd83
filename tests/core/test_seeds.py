from holdfast.core.seeds import generator


def test_a_generator_depends_on_seed_and_names_only():
    first = generator(1, "noise", 3).random(4)
    assert (first == generator(1, "noise", 3).random(4)).all()
    assert (first != generator(2, "noise", 3).random(4)).any()
    assert (first != generator(1, "noise", 4).random(4)).any()


def test_a_file_name_of_any_bytes_has_its_generator():
    odd = b"a\xff.jpg".decode("utf-8", "surrogateescape")
    assert generator(0, odd).random() == generator(0, odd).random()
    assert generator(0, odd).random() != generator(0, "a.jpg").random()
