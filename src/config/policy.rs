//! One policy of a chain: from a table of the file, or from a flag.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::raw::{RawGrant, RawMode, RawPolicy};
use super::{ConfigError, ConfigFile, Environment, read_text, variable};
use crate::decision::Mode;
use crate::policy::builtin::{NAMES, builtin};
use crate::policy::json_of_toml::object;
use crate::policy::limits::{Grants, Limits, PolicySettings, Source};

/// What stands before the name of a carried policy.
const BUILTIN: &str = "builtin:";

/// The longest configuration of a policy, in bytes of JSON.
const CONFIG_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The most memory that WebAssembly with 32-bit addresses can have, in bytes.
const MEMORY_BYTES_MAX: usize = 4 * 1024 * 1024 * 1024;

/// A table of the file.
pub(super) fn from_file(
    file: &ConfigFile,
    raw: RawPolicy,
    environment: Environment<'_>,
) -> Result<PolicySettings, ConfigError> {
    let (name, source) = source(raw.policy.get_ref(), |path| file.resolve(path))
        .map_err(|reason| file.wrong("policy", &raw.policy, reason))?;
    let config_json = match (&raw.config, &raw.config_file) {
        (None, None) => String::new(),
        (Some(config), None) => object(config.get_ref())
            .map_err(|reason| file.wrong("config", config, reason))?
            .to_string(),
        (None, Some(path)) => {
            let text = read_text(&file.resolve(path.get_ref()), CONFIG_BYTES_MAX)?;
            checked_json(text).map_err(|reason| file.wrong("config-file", path, reason))?
        }
        (Some(_), Some(path)) => {
            let reason = "there is a `config` as well; keep one of the two";
            return Err(file.wrong("config-file", path, reason));
        }
    };
    Ok(PolicySettings {
        name,
        source,
        config_json,
        mode: match raw.mode {
            None | Some(RawMode::Enforce) => Mode::Enforce,
            Some(RawMode::Observe) => Mode::Observe,
        },
        limits: limits(file, &raw)?,
        grants: grants(file, &raw, environment)?,
    })
}

/// `PATH` or `builtin:NAME`, optionally with `=` and a JSON file or a JSON object.
pub(super) fn from_flag(flag: &'static str, text: &str) -> Result<PolicySettings, ConfigError> {
    let (reference, config) = match text.split_once('=') {
        Some((reference, config)) => (reference, Some(config)),
        None => (text, None),
    };
    let wrong = |reason: String| ConfigError::Flag {
        flag,
        value: text.to_owned(),
        reason,
    };
    let (name, source) = source(reference, Path::to_owned).map_err(wrong)?;
    let config_json = match config {
        None => String::new(),
        Some(json) if json.starts_with('{') => checked_json(json.to_owned()).map_err(wrong)?,
        Some(path) => checked_json(read_text(Path::new(path), CONFIG_BYTES_MAX)?).map_err(wrong)?,
    };
    Ok(PolicySettings {
        name,
        source,
        config_json,
        mode: Mode::Enforce,
        limits: Limits::default(),
        grants: Grants::default(),
    })
}

/// How a policy is called, and where its component comes from.
fn source(reference: &str, resolve: impl Fn(&Path) -> PathBuf) -> Result<(String, Source), String> {
    let Some(name) = reference.strip_prefix(BUILTIN) else {
        if reference.is_empty() {
            return Err("this names no policy; give a file or `builtin:NAME`".to_owned());
        }
        let path = resolve(Path::new(reference));
        return Ok((path.display().to_string(), Source::File(path)));
    };
    match builtin(name) {
        Some(bytes) => Ok((
            reference.to_owned(),
            Source::Bytes {
                name: reference.to_owned(),
                bytes: Cow::Borrowed(bytes),
            },
        )),
        None => Err(format!(
            "there is no such policy; the carried ones are {}",
            NAMES.join(", ")
        )),
    }
}

fn limits(file: &ConfigFile, raw: &RawPolicy) -> Result<Limits, ConfigError> {
    let default = Limits::default();
    Ok(Limits {
        deadline: file.time("deadline-ms", raw.deadline_ms.as_ref(), default.deadline)?,
        memory_bytes_max: file.size(
            "memory-bytes-max",
            raw.memory_bytes_max.as_ref(),
            (64 * 1024, default.memory_bytes_max, MEMORY_BYTES_MAX),
        )?,
        table_elements_max: file.size(
            "table-elements-max",
            raw.table_elements_max.as_ref(),
            (1, default.table_elements_max, 10_000_000),
        )?,
        output_bytes_max: file.size(
            "output-bytes-max",
            raw.output_bytes_max.as_ref(),
            (1, default.output_bytes_max, default.output_bytes_max),
        )?,
        log_bytes_max: file.size(
            "log-bytes-max",
            raw.log_bytes_max.as_ref(),
            (0, default.log_bytes_max, 16 * 1024 * 1024),
        )?,
        ..default
    })
}

fn grants(file: &ConfigFile, raw: &RawPolicy, environment: Environment<'_>) -> Result<Grants, ConfigError> {
    let mut variables = Vec::new();
    for entry in raw.env.iter().flatten() {
        let (name, value) =
            variable(entry.get_ref(), environment).map_err(|reason| file.wrong("env", entry, reason))?;
        let (Ok(name), Ok(value)) = (name.into_string(), value.into_string()) else {
            return Err(file.wrong(
                "env",
                entry,
                "its value is not UTF-8, which a policy cannot be given",
            ));
        };
        variables.push((name, value));
    }
    let granted = |wanted: RawGrant| raw.grants.contains(&wanted);
    Ok(Grants {
        clock: granted(RawGrant::Clock),
        random: granted(RawGrant::Random),
        env: variables.into_iter().collect(),
        log: granted(RawGrant::Log),
    })
}

/// The text itself, when it is one JSON object.
fn checked_json(text: String) -> Result<String, String> {
    match serde_json::from_str::<Value>(&text) {
        Ok(Value::Object(_)) => Ok(text),
        Ok(_) => Err("the configuration of a policy is one JSON object".to_owned()),
        Err(error) => Err(format!("the configuration of the policy is not JSON: {error}")),
    }
}
