//! One file of the cache: its layout, its authentication, and the one place where bytes become
//! machine code.
//!
//! Layout: nonce, tag, then what the tag authenticates: [`FORMAT`], the entry's digest, the length
//! of the note, the note, the compiled component.

use chacha20poly1305::aead::AeadInPlace as _;
use chacha20poly1305::{Key, KeyInit as _, Tag, XChaCha20Poly1305, XNonce};
use wasmtime::component::Component;

use crate::vocabulary::Digest;

/// Stands in every file; another layout has another one.
pub(super) const FORMAT: &[u8] = b"gatewright compiled policy 1\n";

/// Bytes of the nonce. So many that random ones never meet.
pub(super) const NONCE_BYTES: usize = 24;

const TAG_BYTES: usize = 16;
const LENGTH_BYTES: usize = 8;

/// The bytes of a file.
pub(super) fn file(
    key: &Key,
    nonce: [u8; NONCE_BYTES],
    entry: Digest,
    note: &[u8],
    compiled: &[u8],
) -> Result<Vec<u8>, String> {
    let note_bytes = (note.len() as u64).to_be_bytes();
    let body = [FORMAT, entry.as_bytes(), &note_bytes, note, compiled].concat();
    // Nothing in it is a secret, so it is authenticated and not encrypted.
    let tag = XChaCha20Poly1305::new(key)
        .encrypt_in_place_detached(&XNonce::from(nonce), &body, &mut [])
        .map_err(|_too_long| "it is too long to be authenticated".to_owned())?;
    Ok([nonce.as_slice(), &tag, &body].concat())
}

/// The contents of a file that was written with the key of this directory, as this entry, and not
/// changed since.
///
/// INVARIANT: [`Authentic::check`] is the only way to make one.
pub(super) struct Authentic {
    file: Vec<u8>,
    note: std::ops::Range<usize>,
}

impl Authentic {
    /// Checks the tag before anything else of the file is looked at.
    pub(super) fn check(key: &Key, entry: Digest, file: Vec<u8>) -> Result<Self, &'static str> {
        let short = "it is too short";
        let (nonce, rest) = file.split_first_chunk::<NONCE_BYTES>().ok_or(short)?;
        let (tag, body) = rest.split_first_chunk::<TAG_BYTES>().ok_or(short)?;
        XChaCha20Poly1305::new(key)
            .decrypt_in_place_detached(&XNonce::from(*nonce), body, &mut [], &Tag::from(*tag))
            .map_err(|_wrong| "it is not what this host wrote here")?;
        let rest = body.strip_prefix(FORMAT).ok_or("it has another layout")?;
        let rest = rest
            .strip_prefix(entry.as_bytes().as_slice())
            .ok_or("it was written under another name")?;
        let (length, rest) = rest.split_first_chunk::<LENGTH_BYTES>().ok_or(short)?;
        let length = usize::try_from(u64::from_be_bytes(*length)).map_err(|_large| short)?;
        if rest.len() < length {
            return Err(short);
        }
        let start = file.len() - rest.len();
        Ok(Self {
            file,
            note: start..start + length,
        })
    }

    /// What the loader noted.
    pub(super) fn note(&self) -> &[u8] {
        self.file.get(self.note.clone()).unwrap_or_default()
    }

    /// The component.
    #[expect(
        unsafe_code,
        reason = "the engine cannot check machine code, so who calls vouches for it"
    )]
    pub(super) fn component(&self, engine: &wasmtime::Engine) -> Result<Component, wasmtime::Error> {
        let compiled = self.file.get(self.note.end..).unwrap_or_default();
        // SAFETY: `deserialize` requires bytes that `Component::serialize` made. These are:
        // - `Self` exists only after `check`, which holds every byte that is passed here against an
        //   authenticator under the key of the directory. `file` is the only function that makes
        //   such authenticators, its only caller is `Cache::try_keep`, and that passes the result of
        //   `Component::serialize` unchanged.
        // - The key exists in a `Cache`, which shows it to nobody, and in a file that only this user
        //   can read, in a directory that only this user can enter (`Directory::open` and
        //   `Directory::read` see to both). Who can read it can run code as this user without it.
        // - The bytes are this process's own copy, borrowed for the whole call, so nobody changes
        //   them between the check and the use.
        // - Bytes of another version, machine or set of flags are refused by `deserialize` itself;
        //   they also have another name (`super::entry`), which the authenticator covers.
        unsafe { Component::deserialize(engine, compiled) }
    }
}
