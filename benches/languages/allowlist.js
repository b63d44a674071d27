// The same rule as `builtin:allowlist`, in JavaScript: what is not listed under `allow` is denied.

let allowed = new Set();

export const configurable = {
  configure(configJson) {
    const config = JSON.parse(configJson);
    if (!Array.isArray(config.allow)) {
      return { tag: "invalid", val: "`allow` must be a list of names" };
    }
    allowed = new Set(config.allow);
    return { tag: "ready" };
  },
};

export const authorizer = {
  authorize(name, _argsJson, _ctx) {
    return allowed.has(name) ? { tag: "allow" } : { tag: "deny", val: `\`${name}\` is not on the list` };
  },
};
