"""Online time-series forecasting that keeps learning.

Three doors, one core: `natsr.Live` for a stream of your own, `natsr.NaturalGradient` for a model of your own, and the
command line `natsr`. Importing this needs torch and numpy only.
"""

from natsr.forecasters.base import Forecast as Forecast
from natsr.forecasters.base import Forecaster as Forecaster
from natsr.likelihoods import Gaussian as Gaussian
from natsr.likelihoods import StudentT as StudentT
from natsr.live import Live as Live
from natsr.optim import NaturalGradient as NaturalGradient
from natsr.recipes import METHODS as METHODS
from natsr.recipes import make as make
from natsr.types import DataError as DataError
from natsr.types import Example as Example
from natsr.types import NatsrError as NatsrError
from natsr.types import OptionError as OptionError
from natsr.types import ShapeError as ShapeError
from natsr.types import StateError as StateError
from natsr.types import Task as Task
from natsr.version import __version__ as __version__
