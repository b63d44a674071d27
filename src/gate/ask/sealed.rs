//! Sealed states: the asks of revision 2026-07-28.
//!
//! An ask travels as a `requestState` that only this host can open: authenticated and encrypted
//! (XChaCha20-Poly1305), bound to everything that identifies the call, with an expiry and a nonce.
//! The key is random per process and the nonces that were used are kept in memory, so another
//! process simply cannot open the state and the client asks again.
//!
//! INVARIANT (order): all bindings are checked before the nonce is consumed, so that a stranger
//! cannot burn an approval (ruling R44), and the nonce is consumed before anything runs.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{Key, KeyInit as _, XChaCha20Poly1305, XNonce};
use serde::{Deserialize, Serialize};

use crate::clock::{Clock, RandomUnavailable};
use crate::vocabulary::{Digest, RandomId};

/// Every state of this host starts with this; no other `requestState` is ever opened (ruling R45).
pub const STATE_PREFIX: &str = "gw1.";

/// Every key of `inputRequests` that this host makes starts with this (ruling R49).
pub const KEY_PREFIX: &str = "gatewright-approval-";

/// The longest state that is made or looked at, in bytes; long only when an upstream's own state inside is.
pub const STATE_BYTES_MAX: usize = 1024 * 1024;

/// Used nonces kept at most; past it every ask refuses until old ones expire.
const NONCES_MAX: usize = 100_000;

const LABEL: &[u8] = b"gatewright requestState 1";
const XNONCE_BYTES: usize = 24;

/// What a state is bound to. Each member must be the same when it comes back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bindings {
    /// The upstream's configured name.
    pub server: String,
    /// The principal's subject, none on stdio.
    pub principal: Option<String>,
    /// The seam.
    pub seam: String,
    /// The method.
    pub method: String,
    /// The tool's name.
    pub name: String,
    /// Digest over everything in `params` that will be forwarded (ruling R48), in hexadecimal.
    pub params: String,
}

/// What a state carries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// What the state is for.
    pub purpose: Purpose,
    /// The revision of the chain that asked: carried, not a binding (ruling R40).
    pub revision: String,
    /// Digest of the question.
    pub question: String,
}

/// What a state is for. An approval that was given cannot be mistaken for one that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// The person has been asked.
    Ask,
    /// The person has approved and the upstream asks for input; its own state travels inside.
    Carry {
        /// The upstream's `requestState`, if it gave one.
        upstream_state: Option<String>,
    },
}

/// Why a state cannot be used. The client sees one text for all of them (ruling R42).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// It is not one of ours, or was changed, or was sealed by another process.
    #[error("the state does not open")]
    Unopened,
    /// It was made for another call.
    #[error("the state belongs to another {0}")]
    Other(&'static str),
    /// It is too old.
    #[error("the state has expired")]
    Expired,
    /// It was used before.
    #[error("the state was used before")]
    Used,
    /// As many states as can be remembered were used lately.
    #[error("too many states were used lately")]
    Full,
}

/// Why nothing could be sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// There are no random bytes.
    #[error(transparent)]
    Random(#[from] RandomUnavailable),
    /// The state would be longer than [`STATE_BYTES_MAX`], because an upstream's own state is.
    #[error("the upstream's own state is too long to be carried")]
    TooLong,
}

/// A state that opened, was bound to this very call, and is spent.
#[derive(Debug)]
pub struct Opened {
    /// What it carried.
    pub carried: Carried,
    /// The key under which the answer must stand in `inputResponses`.
    pub key: String,
}

/// A fresh state and the key of its question.
#[derive(Debug)]
pub struct Sealed {
    /// The `requestState`.
    pub state: String,
    /// The key of the question in `inputRequests`.
    pub key: String,
}

#[derive(Serialize, Deserialize)]
struct Content {
    nonce: [u8; 16],
    expires_unix_ms: u64,
    bindings: Bindings,
    carried: Carried,
}

/// Seals and opens states.
pub struct Sealer {
    cipher: XChaCha20Poly1305,
    ttl: Duration,
    used: Mutex<HashMap<[u8; 16], u64>>,
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer")
            .field("ttl", &self.ttl)
            .finish_non_exhaustive()
    }
}

impl Sealer {
    /// A sealer with a random key.
    ///
    /// # Errors
    ///
    /// [`RandomUnavailable`]: without random bytes there is no key.
    pub fn new(ttl: Duration, clock: &dyn Clock) -> Result<Self, RandomUnavailable> {
        let mut key = [0; 32];
        clock.random(&mut key)?;
        Ok(Self {
            cipher: XChaCha20Poly1305::new(&Key::from(key)),
            ttl,
            used: Mutex::default(),
        })
    }

    /// Seals an ask.
    ///
    /// # Errors
    ///
    /// [`SealError`]: nothing can be asked then, and the caller refuses.
    pub fn seal(
        &self,
        bindings: &Bindings,
        carried: Carried,
        clock: &dyn Clock,
    ) -> Result<Sealed, SealError> {
        let (mut nonce, mut xnonce) = ([0; 16], [0; XNONCE_BYTES]);
        clock.random(&mut nonce)?;
        clock.random(&mut xnonce)?;
        let ttl_ms = u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX);
        let content = Content {
            nonce,
            expires_unix_ms: clock.now_unix_ms().saturating_add(ttl_ms),
            bindings: bindings.clone(),
            carried,
        };
        let plain = serde_json::to_vec(&content).map_err(|_| SealError::TooLong)?;
        let sealed = self
            .cipher
            .encrypt(
                &XNonce::from(xnonce),
                Payload {
                    msg: &plain,
                    aad: LABEL,
                },
            )
            .map_err(|_| SealError::TooLong)?;
        let mut bytes = xnonce.to_vec();
        bytes.extend_from_slice(&sealed);
        let state = format!("{STATE_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
        if STATE_BYTES_MAX < state.len() {
            return Err(SealError::TooLong);
        }
        Ok(Sealed {
            state,
            key: key_of(nonce),
        })
    }

    /// Opens a state for the call that `bindings` describe, and spends it.
    ///
    /// # Errors
    ///
    /// [`StateError`]; whatever it is, nothing was spent unless it is a second use.
    pub fn open(&self, state: &str, bindings: &Bindings, clock: &dyn Clock) -> Result<Opened, StateError> {
        let content = self.read(state)?;
        if let Some(other) = first_difference(&content.bindings, bindings) {
            return Err(StateError::Other(other));
        }
        let now = clock.now_unix_ms();
        if content.expires_unix_ms < now {
            return Err(StateError::Expired);
        }
        self.spend(content.nonce, content.expires_unix_ms, now)?;
        Ok(Opened {
            carried: content.carried,
            key: key_of(content.nonce),
        })
    }

    fn read(&self, state: &str) -> Result<Content, StateError> {
        let encoded = state.strip_prefix(STATE_PREFIX).ok_or(StateError::Unopened)?;
        if STATE_BYTES_MAX < state.len() {
            return Err(StateError::Unopened);
        }
        let bytes = URL_SAFE_NO_PAD
            .decode(encoded)
            .map_err(|_| StateError::Unopened)?;
        let (xnonce, sealed) = bytes
            .split_first_chunk::<XNONCE_BYTES>()
            .ok_or(StateError::Unopened)?;
        let plain = self
            .cipher
            .decrypt(
                &XNonce::from(*xnonce),
                Payload {
                    msg: sealed,
                    aad: LABEL,
                },
            )
            .map_err(|_| StateError::Unopened)?;
        serde_json::from_slice(&plain).map_err(|_| StateError::Unopened)
    }

    /// Spends a nonce, atomically: of two that race, one wins.
    fn spend(&self, nonce: [u8; 16], expires_unix_ms: u64, now_unix_ms: u64) -> Result<(), StateError> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if NONCES_MAX <= used.len() {
            used.retain(|_, expires| now_unix_ms <= *expires);
            if NONCES_MAX <= used.len() {
                return Err(StateError::Full);
            }
        }
        match used.insert(nonce, expires_unix_ms) {
            None => Ok(()),
            Some(_) => Err(StateError::Used),
        }
    }
}

fn key_of(nonce: [u8; 16]) -> String {
    format!(
        "{KEY_PREFIX}{}",
        Digest::of(&nonce)
            .as_bytes()
            .first_chunk::<16>()
            .map_or_else(String::new, |half| RandomId::from_random(*half).to_string(),)
    )
}

fn first_difference(sealed: &Bindings, presented: &Bindings) -> Option<&'static str> {
    let Bindings {
        server,
        principal,
        seam,
        method,
        name,
        params,
    } = sealed;
    [
        (*server == presented.server, "upstream"),
        (*principal == presented.principal, "principal"),
        (*seam == presented.seam, "seam"),
        (*method == presented.method, "method"),
        (*name == presented.name, "tool"),
        (*params == presented.params, "request"),
    ]
    .into_iter()
    .find_map(|(same, what)| (!same).then_some(what))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[derive(Debug, Default)]
    struct TestClock(AtomicU64, AtomicU64);

    impl Clock for TestClock {
        fn now_unix_ms(&self) -> u64 {
            self.0.load(Ordering::SeqCst)
        }
        fn random(&self, bytes: &mut [u8]) -> Result<(), RandomUnavailable> {
            for chunk in bytes.chunks_mut(8) {
                let n = self.1.fetch_add(1, Ordering::SeqCst).to_le_bytes();
                chunk.copy_from_slice(&n[..chunk.len()]);
            }
            Ok(())
        }
    }

    fn bindings() -> Bindings {
        Bindings {
            server: "notes".into(),
            principal: None,
            seam: "tools".into(),
            method: "tools/call".into(),
            name: "deploy".into(),
            params: "d".into(),
        }
    }

    fn carried() -> Carried {
        Carried {
            purpose: Purpose::Ask,
            revision: "r".into(),
            question: "q".into(),
        }
    }

    #[test]
    fn a_state_opens_once_for_its_own_call() {
        let clock = TestClock::default();
        let sealer = Sealer::new(Duration::from_secs(300), &clock).unwrap();
        let sealed = sealer.seal(&bindings(), carried(), &clock).unwrap();
        type Change = fn(&mut Bindings);
        let others: [(&str, Change); 6] = [
            ("upstream", |b| b.server.push('x')),
            ("principal", |b| b.principal = Some("eve".into())),
            ("seam", |b| b.seam = "reads".into()),
            ("method", |b| b.method.push('x')),
            ("tool", |b| b.name.push('x')),
            ("request", |b| b.params.push('x')),
        ];
        for (what, change) in others {
            let mut other = bindings();
            change(&mut other);
            assert_eq!(
                StateError::Other(what),
                sealer.open(&sealed.state, &other, &clock).unwrap_err()
            );
        }
        let opened = sealer.open(&sealed.state, &bindings(), &clock).unwrap();
        assert_eq!(
            (carried(), sealed.key),
            (opened.carried, opened.key),
            "strangers burned nothing"
        );
        assert_eq!(
            StateError::Used,
            sealer.open(&sealed.state, &bindings(), &clock).unwrap_err()
        );
    }

    #[test]
    fn a_state_expires() {
        let clock = TestClock::default();
        let sealer = Sealer::new(Duration::from_secs(300), &clock).unwrap();
        let sealed = sealer.seal(&bindings(), carried(), &clock).unwrap();
        clock.0.store(300_001, Ordering::SeqCst);
        assert_eq!(
            StateError::Expired,
            sealer.open(&sealed.state, &bindings(), &clock).unwrap_err()
        );
        clock.0.store(300_000, Ordering::SeqCst);
        assert!(sealer.open(&sealed.state, &bindings(), &clock).is_ok());
    }

    #[test]
    fn another_key_or_any_changed_bit_does_not_open() {
        let clock = TestClock::default();
        let sealer = Sealer::new(Duration::from_secs(300), &clock).unwrap();
        let other = Sealer::new(Duration::from_secs(300), &clock).unwrap();
        let state = sealer.seal(&bindings(), carried(), &clock).unwrap().state;
        assert_eq!(
            StateError::Unopened,
            other.open(&state, &bindings(), &clock).unwrap_err()
        );
        for at in 0..state.len() {
            for bit in 0..7 {
                let mut bytes = state.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                let changed = String::from_utf8(bytes).unwrap();
                assert_eq!(
                    StateError::Unopened,
                    sealer.open(&changed, &bindings(), &clock).unwrap_err()
                );
            }
        }
        for changed in [
            format!("{state}A"),
            format!("{state}="),
            format!(" {state}"),
            String::new(),
        ] {
            assert_eq!(
                StateError::Unopened,
                sealer.open(&changed, &bindings(), &clock).unwrap_err()
            );
        }
        assert!(!state.contains("deploy"));
    }

    #[test]
    fn nonces_are_distinct_and_keys_follow_them() {
        let clock = TestClock::default();
        let sealer = Sealer::new(Duration::from_secs(300), &clock).unwrap();
        let one = sealer.seal(&bindings(), carried(), &clock).unwrap();
        let two = sealer.seal(&bindings(), carried(), &clock).unwrap();
        assert_ne!(one.state, two.state);
        assert_ne!(one.key, two.key);
    }
}
