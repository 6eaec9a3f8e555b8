"""Many learners at once: independent forecasters of one shape that learn in one step.

`Together` steps them as one, `Tiles` in groups that fit a cache, `Compiled` in one call of C, `Apart` each on its own;
`best` measures which of these is fastest here. Whichever it is, each learner forecasts what it would forecast alone, to
rounding.
"""

from natsr.fleet.apart import Apart as Apart
from natsr.fleet.apart import Tiles as Tiles
from natsr.fleet.base import Learners as Learners
from natsr.fleet.choice import best as best
from natsr.fleet.compiled import Compiled as Compiled
from natsr.fleet.instep import in_step as in_step
from natsr.fleet.shape import shape_of as shape_of
from natsr.fleet.together import Together as Together
