"""Datasets by name, any CSV by path, calendar features, and the stream that a forecaster meets.

Importing this does not import pandas; reading a table does.
"""

from natsr.data.calendar import CALENDARS as CALENDARS
from natsr.data.calendar import Calendar as Calendar
from natsr.data.calendar import CalendarKind as CalendarKind
from natsr.data.named import DATASETS as DATASETS
from natsr.data.named import Dataset as Dataset
from natsr.data.named import dataset as dataset
from natsr.data.named import export_npz as export_npz
from natsr.data.named import load as load
from natsr.data.named import locate as locate
from natsr.data.named import verify as verify
from natsr.data.series import Borders as Borders
from natsr.data.series import Prepared as Prepared
from natsr.data.series import Scaling as Scaling
from natsr.data.series import Series as Series
from natsr.data.series import check_length as check_length
from natsr.data.series import prepare as prepare
