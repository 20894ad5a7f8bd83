"""Data frames of pandas, compared with the rows they are made from."""

import pandas


def assert_is_frame(frame, rows):
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == list(dict.fromkeys(key for row in rows for key in row))
    assert len(frame) == len(rows)
    for place, row in enumerate(rows):
        for key, value in row.items():
            cell = frame[key].iloc[place]
            assert cell == value or (pandas.isna(cell) and pandas.isna(value)), (key, value, cell)
