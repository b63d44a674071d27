//! From a component and its configuration to a component that is configured already.
//!
//! The component is instrumented so that its memories and globals can be read, instantiated,
//! configured, and written down again with what they then hold. What cannot be taken this way is
//! configured at each call, so nothing here is an error unless the guest itself fails.
//!
//! Invariant: an image decides as the component does that is configured at each call. Whatever
//! else than memories and globals `configure` could change is an obstacle.

use std::collections::HashMap;
use std::sync::Arc;

use wasmparser::{CanonicalFunction, Encoding, Parser, Payload};
use wasmtime::component::{Component, ComponentNamedList, Lift, TypedFunc, WasmList};
use wasmtime_wizer::{ComponentInstanceState, Wizer};

use super::{LoadError, guest, reason, trial, world};
use crate::policy::engine::{Engine, MEMORIES_MAX};
use crate::policy::judge::{Live, Setup, arm, caught};

/// What reading a memory adds to it: one page, or less.
const PAGE_BYTES: usize = 64 * 1024;

/// What came of the attempt.
pub(super) enum Taken {
    /// A component that starts with its configuration.
    Image(Vec<u8>),
    /// None, and why.
    Not(String),
}

/// Configures the component once and takes a snapshot.
pub(super) fn take(engine: &Arc<Engine>, setup: &Arc<Setup>, bytes: &[u8]) -> Result<Taken, LoadError> {
    if let Some(obstacle) = obstacle(bytes) {
        return Ok(Taken::Not(obstacle));
    }
    let attempt = async { Ok(attempt(engine, setup, bytes).await) };
    match trial::runtime(&setup.name)?.block_on(caught(attempt)) {
        Ok(attempt) => attempt,
        Err((_, panic)) => Ok(Taken::Not(panic)),
    }
}

async fn attempt(engine: &Arc<Engine>, setup: &Arc<Setup>, bytes: &[u8]) -> Result<Taken, LoadError> {
    let mut wizer = Wizer::new();
    // By default it drops a function that is called like its own.
    wizer.keep_init_func(true);
    let (context, instrumented) = match wizer.instrument_component(bytes) {
        Ok(instrumented) => instrumented,
        Err(error) => return Ok(Taken::Not(reason(&error))),
    };
    let component = match Component::new(engine.wasm(), instrumented) {
        Ok(component) => component,
        Err(error) => return Ok(Taken::Not(reason(&error))),
    };
    // What is wrong with the component itself is found again, and said, without instruments.
    let linked = match world::linked(engine, &setup.name, &component) {
        Ok(linked) => linked,
        Err(error) => return Ok(Taken::Not(error.to_string())),
    };
    let guest = guest(engine, setup, &linked, linked.configure);
    let mut live = trial::passed(&setup.name, guest.trial().await)?;
    if live.store.data().holds_handles() {
        let kept = "`configure` keeps something of WASI, which lives as long as one instance";
        return Ok(Taken::Not(kept.to_owned()));
    }
    arm(&mut live.store, setup.limits.configure_deadline);
    live.store.set_hostcall_fuel(usize::MAX);
    let memories = usize::try_from(MEMORIES_MAX).unwrap_or(1);
    live.store.data_mut().limiter.spare(memories * PAGE_BYTES);
    let mut access = Access {
        live,
        memories: HashMap::new(),
        failed: None,
    };
    let image = wizer.snapshot_component(&context, &mut access).await;
    Ok(match (access.failed, image) {
        (None, Ok(image)) => Taken::Image(image),
        (Some(failed), _) => Taken::Not(failed),
        (None, Err(error)) => Taken::Not(reason(&error)),
    })
}

/// Reads what an instrumented instance holds.
struct Access {
    live: Box<Live>,
    /// Each memory is asked for twice, and reading it makes it grow: the second time it is here.
    memories: HashMap<String, Vec<u8>>,
    /// The first thing that went wrong. Nothing that was read counts then.
    failed: Option<String>,
}

impl Access {
    async fn call<Value>(&mut self, interface: &str, name: &str) -> Option<Value>
    where
        (Value,): ComponentNamedList + Lift + Send + Sync + 'static,
    {
        match self.try_call(interface, name).await {
            Ok((value,)) => Some(value),
            Err(error) => {
                self.failed.get_or_insert(reason(&error));
                None
            }
        }
    }

    async fn try_call<Value>(&mut self, interface: &str, name: &str) -> Result<(Value,), wasmtime::Error>
    where
        (Value,): ComponentNamedList + Lift + Send + Sync + 'static,
    {
        let Live { store, instance } = &mut *self.live;
        let missing = || wasmtime::Error::msg(format!("`{name}` of the instruments is missing"));
        let (_, interface) = instance
            .get_export(&mut *store, None, interface)
            .ok_or_else(missing)?;
        let (_, function) = instance
            .get_export(&mut *store, Some(&interface), name)
            .ok_or_else(missing)?;
        let function: TypedFunc<(), (Value,)> = instance.get_typed_func(&mut *store, function)?;
        function.call_async(&mut *store, ()).await
    }
}

impl ComponentInstanceState for Access {
    async fn call_func_ret_list_u8(
        &mut self,
        instance: &str,
        func: &str,
        contents: impl FnOnce(&[u8]) + Send,
    ) {
        if !self.memories.contains_key(func)
            && let Some(list) = self.call::<WasmList<u8>>(instance, func).await
        {
            let memory = list.as_le_slice(&self.live.store).to_vec();
            self.memories.insert(func.to_owned(), memory);
        }
        contents(self.memories.get(func).map_or(&[], Vec::as_slice));
    }

    async fn call_func_ret_s32(&mut self, instance: &str, func: &str) -> i32 {
        self.call(instance, func).await.unwrap_or_default()
    }

    async fn call_func_ret_s64(&mut self, instance: &str, func: &str) -> i64 {
        self.call(instance, func).await.unwrap_or_default()
    }

    async fn call_func_ret_f32(&mut self, instance: &str, func: &str) -> u32 {
        self.call::<f32>(instance, func)
            .await
            .unwrap_or_default()
            .to_bits()
    }

    async fn call_func_ret_f64(&mut self, instance: &str, func: &str) -> u64 {
        self.call::<f64>(instance, func)
            .await
            .unwrap_or_default()
            .to_bits()
    }
}

/// What the snapshotter does not look for and an image would not have.
fn obstacle(bytes: &[u8]) -> Option<String> {
    /// What is known of the module or component that is being read.
    #[derive(Default)]
    struct Level {
        module: bool,
        state: bool,
        exports: bool,
    }
    let mut levels: Vec<Level> = Vec::new();
    for payload in Parser::new(0).parse_all(bytes) {
        // The bytes were looked at before; what cannot be read is said by who validates.
        let payload = payload.ok()?;
        if let Payload::Version { encoding, .. } = payload {
            levels.push(Level {
                module: encoding == Encoding::Module,
                ..Level::default()
            });
        }
        let level = levels.last_mut()?;
        match payload {
            Payload::MemorySection(_) => level.state = true,
            Payload::GlobalSection(globals) => {
                level.state |= globals
                    .into_iter()
                    .any(|global| global.is_ok_and(|global| global.ty.mutable));
            }
            Payload::ExportSection(_) => level.exports = true,
            Payload::ComponentCanonicalSection(functions) => {
                let plain = |function| {
                    matches!(
                        function,
                        CanonicalFunction::Lift { .. }
                            | CanonicalFunction::Lower { .. }
                            | CanonicalFunction::ResourceDrop { .. }
                    )
                };
                if !functions.into_iter().all(|function| function.is_ok_and(plain)) {
                    return Some(
                        "it makes handles or tasks of its own, which live as long as one instance".to_owned(),
                    );
                }
            }
            Payload::End(_) => {
                if level.module && level.state && !level.exports {
                    return Some("a module of it keeps state and exports nothing".to_owned());
                }
                levels.pop();
            }
            _ => {}
        }
    }
    None
}
