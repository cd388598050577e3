# The public names, once: for type checkers, and for __init__.py, which imports each when it is used.
from psofed.federation_new.client.online import OnlineRegression as OnlineRegression
from psofed.federation_new.flower.models import arrays_of as arrays_of
from psofed.federation_new.flower.models import load_into as load_into
from psofed.federation_new.flower.sharing import partial_sharing as partial_sharing
from psofed.federation_new.flower.strategy import PSOFed as PSOFed
from psofed.federation_new.protocol.column_names import ColumnNames as ColumnNames
from psofed.federation_new.protocol.masks import DerivedMasks as DerivedMasks
from psofed.federation_new.protocol.masks import MaskSource as MaskSource
from psofed.federation_new.protocol.masks import Sharing as Sharing
from psofed.federation_new.protocol.masks import SuppliedMasks as SuppliedMasks
from psofed.federation_new.protocol.run_options import ReplyLimits as ReplyLimits
from psofed.federation_new.protocol.run_options import RoundPlan as RoundPlan
from psofed.federation_new.server.loop import Server as Server
from psofed.federation_new.server.participants import DerivedParticipants as DerivedParticipants
from psofed.federation_new.server.participants import ParticipantSource as ParticipantSource
from psofed.federation_new.server.step import Combination as Combination
from psofed.federation_new.server.suspects import plan_defence as plan_defence
