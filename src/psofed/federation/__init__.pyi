# The public names, once: for type checkers, and for __init__.py, which imports each when it is used.
from psofed.federation.client.online import OnlineRegression as OnlineRegression
from psofed.federation.flower.models import arrays_of as arrays_of
from psofed.federation.flower.models import load_into as load_into
from psofed.federation.flower.sharing import partial_sharing as partial_sharing
from psofed.federation.flower.strategy import PSOFed as PSOFed
from psofed.federation.protocol.layout import ColumnNames as ColumnNames
from psofed.federation.protocol.masks import DerivedMasks as DerivedMasks
from psofed.federation.protocol.masks import Sharing as Sharing
from psofed.federation.protocol.run_options import ReplyLimits as ReplyLimits
from psofed.federation.protocol.run_options import RoundPlan as RoundPlan
from psofed.federation.server.loop import Server as Server
from psofed.federation.server.step import Combination as Combination
from psofed.federation.server.step import plan_defence as plan_defence
