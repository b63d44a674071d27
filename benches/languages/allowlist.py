"""The same rule as `builtin:allowlist`, in Python: what is not listed under `allow` is denied."""

import json

from wit_world import exports
from wit_world.exports import authorizer, configurable

allowed = frozenset()


class Configurable(exports.Configurable):
    def configure(self, config_json):
        global allowed
        listed = json.loads(config_json).get("allow")
        if not isinstance(listed, list):
            return configurable.Configured_Invalid("`allow` must be a list of names")
        allowed = frozenset(listed)
        return configurable.Configured_Ready()


class Authorizer(exports.Authorizer):
    def authorize(self, name, args_json, ctx):
        if name in allowed:
            return authorizer.Decision_Allow()
        return authorizer.Decision_Deny(f"`{name}` is not on the list")
