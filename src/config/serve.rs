//! What `serve` needs: the listener, its endpoints, and the chains that all of them share.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use toml::Spanned;

use super::raw::{Raw, RawAdmin, RawEndpoint, RawHeader, RawListen, RawTls, RawUpstream};
use super::{
    ConfigError, ConfigFile, Environment, audit_settings, cache_directory, chain, check_deadlines, engine,
    host, variables,
};
use crate::audit::AuditSettings;
use crate::decision::Seam;
use crate::door::http::{AllowList, EndpointLimits, LOOPBACK_NAMES, ListenSettings};
use crate::host::endpoints::{EndpointSettings, UpstreamSettings};
use crate::host::guards::{ChainSettings, GuardSettings};
use crate::policy::reload::Proof;
use crate::upstream::child::ChildSettings;
use crate::upstream::http::HttpSettings;
use crate::wire::scan::ScanLimits;

/// Where `serve` listens when the file does not say.
const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// Everything that `serve` needs.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// The chains, which every endpoint shares, and the engine that runs them.
    pub guards: GuardSettings,
    /// The audit log.
    pub audit: AuditSettings,
    /// Where to listen.
    pub address: SocketAddr,
    /// The rules of the listener.
    pub listen: ListenSettings,
    /// Where the gate is looked after, and by which names; none for nowhere.
    pub admin: Option<(SocketAddr, AllowList)>,
    /// The endpoints, at least one, each with a path and a name of its own.
    pub endpoints: Vec<EndpointSettings>,
}

impl ServeConfig {
    /// Reads and checks the file.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong.
    pub fn load(path: &Path, no_cache: bool, environment: Environment<'_>) -> Result<Self, ConfigError> {
        let file = ConfigFile::read(path)?;
        let raw = file.parse()?;
        if let Some(upstream) = &raw.upstream {
            let reason = "this is for `wrap`; give `serve` an `[[endpoint]]` for each server";
            return Err(file.wrong("upstream", upstream, reason));
        }
        let tools = chain(&file, raw.tools, ("--tools", &[]), environment)?;
        let reads = chain(&file, raw.reads, ("--reads", &[]), environment)?;
        for (seam, chain) in [(Seam::Tools, &tools), (Seam::Reads, &reads)] {
            if matches!(chain, ChainSettings::Unset) {
                return Err(ConfigError::Unguarded {
                    path: file.path,
                    seam,
                });
            }
        }
        let listen = raw.listen.unwrap_or_default();
        let common = Raw {
            tools: None,
            reads: None,
            ask: raw.ask,
            wire: raw.wire,
            upstream: None,
            audit: None,
            cache: None,
            listen: None,
            admin: None,
            endpoint: None,
        };
        let mut endpoints = Vec::new();
        for entry in raw.endpoint.unwrap_or_default() {
            endpoints.push(endpoint(&file, entry, &common, environment)?);
        }
        let first = endpoints.first().ok_or_else(|| ConfigError::NoEndpoint {
            path: file.path.clone(),
        })?;
        check_deadlines(&tools, first.host.asks.deadline)?;
        check_deadlines(&reads, first.host.asks.deadline)?;
        check_distinct(&file, &endpoints)?;
        let scan = first.host.scan.clone();
        let place = Place {
            table: "listen",
            address: listen.address.as_ref(),
            insecure_no_auth: listen.insecure_no_auth.unwrap_or(false),
            hosts: listen.hosts.as_deref().unwrap_or_default(),
        };
        let address = place.address(&file)?;
        let allow = AllowList {
            hosts: place.hosts(&file, address)?,
            origins: origins(&file, listen.origins.as_deref().unwrap_or_default())?,
        };
        Ok(Self {
            address,
            listen: listen_settings(&file, &listen, allow, scan)?,
            admin: raw.admin.as_ref().map(|raw| admin(&file, raw)).transpose()?,
            audit: audit_settings(&file, raw.audit, None, environment)?,
            guards: GuardSettings {
                engine: engine(&tools, &reads),
                cache: cache_directory(&file, raw.cache.as_ref(), no_cache, environment)?,
                proof: Proof::Decides,
                tools,
                reads,
            },
            endpoints,
        })
    }
}

fn listen_settings(
    file: &ConfigFile,
    listen: &RawListen,
    allow: AllowList,
    scan: ScanLimits,
) -> Result<ListenSettings, ConfigError> {
    Ok(ListenSettings {
        allow,
        scan,
        connections_max: file.size(
            "listen.connections-max",
            listen.connections_max.as_ref(),
            (1, 4096, 1024 * 1024),
        )?,
        header_bytes_max: file.size(
            "listen.header-bytes-max",
            listen.header_bytes_max.as_ref(),
            (8192, 64 * 1024, 16 * 1024 * 1024),
        )?,
        read_within: file.time("listen.read-ms", listen.read_ms.as_ref(), Duration::from_secs(30))?,
        drain_within: file.time(
            "listen.drain-ms",
            listen.drain_ms.as_ref(),
            Duration::from_secs(10),
        )?,
        tls: listen
            .tls
            .as_ref()
            .map(|tls| server_config(file, tls))
            .transpose()?,
    })
}

/// A place to listen: its address, and what it is called.
struct Place<'a> {
    table: &'static str,
    address: Option<&'a Spanned<String>>,
    insecure_no_auth: bool,
    hosts: &'a [Spanned<String>],
}

impl Place<'_> {
    fn address(&self, file: &ConfigFile) -> Result<SocketAddr, ConfigError> {
        let Some(at) = self.address else {
            return Ok(DEFAULT_ADDRESS);
        };
        let text = at.get_ref();
        let field = format!("{}.address", self.table);
        let address = text.parse::<SocketAddr>().map_err(|_| {
            let reason = format!("`{text}` is no address; give one like `{DEFAULT_ADDRESS}` or `[::1]:8080`");
            file.wrong(&field, at, reason)
        })?;
        if address.ip().is_loopback() || self.insecure_no_auth {
            return Ok(address);
        }
        let reason = "other machines reach this address, and nobody is asked who they are; listen on loopback, or \
                      choose openly to serve everybody with `insecure-no-auth = true`";
        Err(file.wrong(&field, at, reason))
    }

    /// On loopback the names of this machine, the address itself, and what the file lists.
    fn hosts(&self, file: &ConfigFile, address: SocketAddr) -> Result<Vec<String>, ConfigError> {
        let field = format!("{}.hosts", self.table);
        let mut hosts: Vec<String> = Vec::new();
        if address.ip().is_loopback() {
            hosts.extend(LOOPBACK_NAMES.iter().map(|name| (*name).to_owned()));
        }
        if !address.ip().is_unspecified() {
            hosts.push(match address.ip() {
                IpAddr::V4(ip) => ip.to_string(),
                IpAddr::V6(ip) => format!("[{ip}]"),
            });
        }
        for host in self.hosts {
            let name = host.get_ref();
            let has_port = name.contains(':') && !name.ends_with(']');
            if name.is_empty() || name.contains(['/', '@', '*']) || has_port {
                let reason = "this is no host; give a name or an address without a port";
                return Err(file.wrong(&field, host, reason));
            }
            hosts.push(name.to_ascii_lowercase());
        }
        if let (true, Some(at)) = (hosts.is_empty(), self.address) {
            let reason = format!("this address has no name; list in `{field}` what it is called");
            return Err(file.wrong(&format!("{}.address", self.table), at, reason));
        }
        Ok(hosts)
    }
}

fn origins(file: &ConfigFile, entries: &[Spanned<String>]) -> Result<Vec<String>, ConfigError> {
    let mut origins = Vec::new();
    for origin in entries {
        let text = origin.get_ref();
        let rest = text
            .strip_prefix("https://")
            .or_else(|| text.strip_prefix("http://"));
        if rest.is_none_or(|rest| rest.is_empty() || rest.contains(['/', '*'])) {
            let reason = "this is no origin; give one like `https://app.example.com`";
            return Err(file.wrong("listen.origins", origin, reason));
        }
        origins.push(text.to_ascii_lowercase());
    }
    Ok(origins)
}

fn admin(file: &ConfigFile, raw: &RawAdmin) -> Result<(SocketAddr, AllowList), ConfigError> {
    let place = Place {
        table: "admin",
        address: Some(&raw.address),
        insecure_no_auth: raw.insecure_no_auth.unwrap_or(false),
        hosts: raw.hosts.as_deref().unwrap_or_default(),
    };
    let address = place.address(file)?;
    let allow = AllowList {
        hosts: place.hosts(file, address)?,
        origins: Vec::new(),
    };
    Ok((address, allow))
}

fn server_config(file: &ConfigFile, tls: &RawTls) -> Result<Arc<ServerConfig>, ConfigError> {
    let wrong = |field: &str, at: &Spanned<String>, error: &dyn std::fmt::Display| {
        file.wrong(field, at, format!("{error}; give a file in PEM format"))
    };
    let certificates = CertificateDer::pem_file_iter(file.resolve(Path::new(tls.certificates.get_ref())))
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| wrong("listen.tls.certificates", &tls.certificates, &error))?;
    let key = PrivateKeyDer::from_pem_file(file.resolve(Path::new(tls.key.get_ref())))
        .map_err(|error| wrong("listen.tls.key", &tls.key, &error))?;
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(|error| wrong("listen.tls.certificates", &tls.certificates, &error))?;
    Ok(Arc::new(config))
}

fn endpoint(
    file: &ConfigFile,
    entry: Spanned<RawEndpoint>,
    common: &Raw,
    environment: Environment<'_>,
) -> Result<EndpointSettings, ConfigError> {
    let at = entry.span();
    let entry = entry.into_inner();
    let path = entry.path.get_ref();
    if !path.starts_with('/') || path.contains(['{', '}', '?', '#', ' ', '*']) || path.contains("//") {
        let reason = format!("`{path}` is no path; give one like `/mcp`, without `{{}}`, `*`, `?` and `#`");
        return Err(file.wrong("endpoint.path", &entry.path, reason));
    }
    let path = path.clone();
    let name = entry
        .name
        .clone()
        .unwrap_or_else(|| path.trim_matches('/').to_owned());
    let upstream = RawUpstream {
        name: None,
        timeout_ms: entry.timeout_ms.clone(),
        line_bytes_max: entry.line_bytes_max.clone(),
        env: entry.env.clone(),
        elicitation: entry.elicitation,
        sampling: entry.sampling,
        roots: entry.roots,
    };
    let host = host(file, name, common.ask.as_ref(), common.wire.as_ref(), &upstream)?;
    let limits = limits(file, &entry)?;
    let upstream = match (&entry.command, &entry.url) {
        (Some(command), None) => {
            let (program, arguments) = command.get_ref().split_first().ok_or_else(|| {
                file.wrong(
                    "endpoint.command",
                    command,
                    "there is no program; give `[\"PROGRAM\", …]`",
                )
            })?;
            UpstreamSettings::Child(ChildSettings {
                program: program.into(),
                arguments: arguments.iter().map(Into::into).collect(),
                environment: variables(file, &upstream, &[], environment)?,
            })
        }
        (None, Some(url)) => UpstreamSettings::Http(Box::new(HttpSettings {
            url: upstream_url(file, url)?,
            headers: headers(file, entry.headers.as_deref().unwrap_or_default(), environment)?,
            message_bytes_max: host.upstream_line_bytes_max,
        })),
        (Some(_), Some(_)) | (None, None) => {
            let whole = Spanned::new(at, ());
            let reason = "give either `command = [\"PROGRAM\", …]` or `url = \"http…\"`";
            return Err(file.wrong("endpoint", &whole, reason));
        }
    };
    Ok(EndpointSettings {
        path,
        host,
        upstream,
        children_max: file.size(
            "endpoint.children-max",
            entry.children_max.as_ref(),
            (1, 64, 65536),
        )?,
        limits,
    })
}

/// The limits of the door at this endpoint.
fn limits(file: &ConfigFile, entry: &RawEndpoint) -> Result<EndpointLimits, ConfigError> {
    let limits = EndpointLimits::default();
    Ok(EndpointLimits {
        sessions_max: file.size(
            "endpoint.sessions-max",
            entry.sessions_max.as_ref(),
            (1, limits.sessions_max, 1024 * 1024),
        )?,
        streams_max: file.size(
            "endpoint.streams-max",
            entry.streams_max.as_ref(),
            (2, limits.streams_max, 65536),
        )?,
        idle: file.time("endpoint.idle-ms", entry.idle_ms.as_ref(), limits.idle)?,
    })
}

fn upstream_url(file: &ConfigFile, url: &Spanned<String>) -> Result<Url, ConfigError> {
    let wrong = |reason: &str| file.wrong("endpoint.url", url, reason);
    let parsed =
        Url::parse(url.get_ref()).map_err(|error| wrong(&format!("{error}; give an http or https URL")))?;
    match parsed.scheme() {
        "http" | "https" if parsed.username().is_empty() && parsed.password().is_none() => Ok(parsed),
        "http" | "https" => Err(wrong(
            "a URL carries no password here; give `headers` for a credential",
        )),
        _ => Err(wrong("this is neither http nor https")),
    }
}

/// Headers that this host makes itself, or that belong to one connection.
const OWN_HEADERS: &[&str] = &[
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "transfer-encoding",
];

fn headers(
    file: &ConfigFile,
    entries: &[Spanned<RawHeader>],
    environment: Environment<'_>,
) -> Result<HeaderMap, ConfigError> {
    let mut headers = HeaderMap::new();
    for at in entries {
        let entry = at.get_ref();
        let wrong = |reason: String| file.wrong("endpoint.headers", at, reason);
        let name = HeaderName::try_from(entry.name.as_str())
            .map_err(|_| wrong(format!("`{}` is no name of a header", entry.name)))?;
        if OWN_HEADERS.contains(&name.as_str()) || name.as_str().starts_with("mcp-") {
            return Err(wrong(format!(
                "`{name}` is made by the gate itself; leave it out"
            )));
        }
        let value = match (&entry.value, &entry.value_env) {
            (Some(value), None) => value.clone(),
            (None, Some(variable)) => environment(variable)
                .and_then(|value| value.into_string().ok())
                .ok_or_else(|| {
                    wrong(format!(
                        "the variable `{variable}` is not set here, or is not UTF-8"
                    ))
                })?,
            (Some(_), Some(_)) | (None, None) => {
                return Err(wrong("give either `value` or `value-env`".to_owned()));
            }
        };
        let mut value = HeaderValue::try_from(value)
            .map_err(|_| wrong(format!("what `{name}` is given is no value of a header")))?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Ok(headers)
}

/// Records, policies and sealed approvals tell endpoints apart by their names.
fn check_distinct(file: &ConfigFile, endpoints: &[EndpointSettings]) -> Result<(), ConfigError> {
    let (mut paths, mut names) = (HashSet::new(), HashSet::new());
    for endpoint in endpoints {
        if !paths.insert(endpoint.path.as_str()) || !names.insert(endpoint.host.server.as_str()) {
            return Err(ConfigError::SameEndpoint {
                path: file.path.clone(),
                endpoint: endpoint.path.clone(),
            });
        }
    }
    Ok(())
}
