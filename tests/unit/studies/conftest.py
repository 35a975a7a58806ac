from __future__ import annotations

from support.sentences import golden as golden
