//! One judgement: a fresh instance, one answer, and nothing left.

use std::panic::AssertUnwindSafe;
use std::str::Utf8Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use wasmtime::component::{ComponentExportIndex, ComponentNamedList, Instance, InstancePre, Lift, Lower};
use wasmtime::{PoolConcurrencyLimitError, Store, Trap, UpdateDeadline};

use super::contract::{
    AUTHORIZER, AuthorizeParams, AuthorizeResult, CONFIGURABLE, ConfigureParams, ConfigureResult, VISIBILITY,
    VisibleParams, VisibleResult, WireConfigured, WireContext, WireDecision,
};
use super::engine::Engine;
use super::limits::{Grants, Limits};
use super::lists::Viewing;
use super::sandbox::{CONFIGURE_UNIX_MS, Phase, State, WRITE_BYTES_MAX};
use super::text::escaped;
use crate::decision::{Decision, Fault};
use crate::seam::Call;

/// The texts by which the engine refuses a value that is no answer, and for which it has no type.
/// Whatever is not recognized here is a trap, and a denial all the same.
const NO_ANSWER: [&str; 2] = ["unexpected discriminant", "fuel allocated for hostcalls"];

/// What a component needs room for beside the text that it hands over in one call, in bytes.
const HANDOVER_BYTES: usize = 4 * 1024;

/// Text kept of a configuration's refusal, in bytes.
const REFUSAL_BYTES_MAX: usize = 512;

/// Why a guest gave no decision, and what exactly happened.
pub(super) type Failure = (Fault, String);

/// What a guest is given beside its code.
pub(super) struct Setup {
    pub(super) name: String,
    pub(super) config_json: String,
    pub(super) limits: Limits,
    pub(super) grants: Arc<Grants>,
}

/// A component, ready to be instantiated.
pub(super) struct Guest {
    pub(super) engine: Arc<Engine>,
    pub(super) setup: Arc<Setup>,
    pub(super) instance: InstancePre<State>,
    pub(super) authorize: ComponentExportIndex,
    /// None when it takes no configuration, or holds it already.
    pub(super) configure: Option<ComponentExportIndex>,
    /// None when it says nothing of lists.
    pub(super) visible: Option<ComponentExportIndex>,
    /// Whether it imports WASI, so that it can wait inside a host call, where no epoch ends it.
    pub(super) waits: bool,
    /// Whether a judgement used anything of WASI.
    pub(super) used_imports: AtomicBool,
}

/// An instance that was started and configured.
pub(super) struct Live {
    pub(super) store: Store<State>,
    pub(super) instance: Instance,
}

/// What came of one try to start and configure an instance.
pub(super) enum Trial {
    /// It works.
    Ready(Box<Live>),
    /// `configure` refused, with this text, cut and escaped.
    Refused(String),
    /// An export does not have the type of the contract.
    WrongType {
        /// The interface that it is of.
        interface: &'static str,
        /// How it differs.
        reason: String,
    },
    /// It failed.
    Failed(Failure),
}

/// Why a run ended without a decision.
enum Ended {
    /// The engine says why.
    Error(wasmtime::Error),
    /// `configure` refused in a judgement what it took when the policy was loaded.
    Unconfigured(String),
    /// An export does not have the type of the contract.
    WrongType(&'static str, wasmtime::Error),
}

impl From<wasmtime::Error> for Ended {
    fn from(error: wasmtime::Error) -> Self {
        Self::Error(error)
    }
}

impl Guest {
    /// Judges `call` in a fresh instance, within the deadline.
    ///
    /// A guest that imports nothing runs to its end in the first poll, on the thread that polls.
    pub(super) async fn judge(&self, call: &Call<'_>) -> Result<Decision, Failure> {
        let _turn = self.turn().await?;
        let mut store = self.judging(call.context.now_unix_ms);
        let run = self.authorize(&mut store, call);
        let ended = self.within(self.setup.limits.deadline, run).await;
        let decision = self.conclude(&store, ended);
        let decision = decision.and_then(|decision| self.checked(decision));
        self.finish(store, decision)
    }

    /// Says in a fresh instance, within the deadline of a judgement, whether an entry of a list is shown.
    pub(super) async fn shows(&self, viewing: Viewing<'_>) -> Result<bool, Failure> {
        let Some(visible) = &self.visible else {
            return Ok(true);
        };
        let _turn = self.turn().await?;
        let mut store = self.judging(viewing.now_unix_ms);
        let run = async {
            let instance = self.start(&mut store).await?;
            let params = (viewing.kind.as_str(), viewing.name, viewing.ctx_json);
            let (shown,): VisibleResult = self
                .call::<VisibleParams<'_>, _>(&mut store, &instance, (VISIBILITY, visible), params)
                .await?;
            Ok(shown)
        };
        let ended = self.within(self.setup.limits.deadline, run).await;
        let shown = self.conclude(&store, ended);
        self.finish(store, shown)
    }

    /// A store for one judgement.
    fn judging(&self, now_unix_ms: u64) -> Store<State> {
        let limits = &self.setup.limits;
        let handover_bytes_max = limits
            .output_bytes_max
            .max(WRITE_BYTES_MAX)
            .saturating_add(HANDOVER_BYTES);
        self.store(limits.deadline, handover_bytes_max, now_unix_ms)
    }

    fn finish<T>(&self, store: Store<State>, answer: Result<T, Failure>) -> Result<T, Failure> {
        self.report(&store);
        if store.data().used_wasi() {
            self.used_imports.store(true, Ordering::Relaxed);
        }
        if answer.is_err() {
            self.engine.retire(store);
        }
        answer
    }

    /// Instantiates once and configures, to see whether judgements can.
    pub(super) async fn trial(&self) -> Trial {
        let limits = &self.setup.limits;
        let deadline = limits.configure_deadline;
        // A refusal is read whole and then cut, so that its beginning can be shown.
        let mut store = self.store(deadline, limits.memory_bytes_max, CONFIGURE_UNIX_MS);
        let run = async {
            let instance = self.start(&mut store).await?;
            self.check_types(&mut store, &instance)?;
            Ok(instance)
        };
        let ended = self.within(deadline, run).await;
        self.report(&store);
        match ended {
            Some(Ok(instance)) if store.data().limiter.refused().is_none() => {
                Trial::Ready(Box::new(Live { store, instance }))
            }
            Some(Ok(_)) | None => Trial::Failed(self.failure(&store, None)),
            Some(Err(Ended::Unconfigured(text))) => Trial::Refused(text),
            Some(Err(Ended::WrongType(interface, error))) => Trial::WrongType {
                interface,
                reason: format!("{error:#}"),
            },
            Some(Err(Ended::Error(error))) => Trial::Failed(self.failure(&store, Some(&error))),
        }
    }

    /// Waits for a place among the judgements that may wait, when this is one.
    async fn turn(&self) -> Result<Option<tokio::sync::SemaphorePermit<'_>>, Failure> {
        if !self.waits {
            return Ok(None);
        }
        let turn = self.engine.waiting().acquire().await;
        turn.map(Some)
            .map_err(|_closed| (Fault::Internal, "the engine is closed".to_owned()))
    }

    fn store(&self, deadline: Duration, handover_bytes_max: usize, now_unix_ms: u64) -> Store<State> {
        let phase = match &self.configure {
            Some(_) => Phase::Configuring,
            None => Phase::Judging,
        };
        let state = State::new(
            &self.setup.limits,
            phase,
            &self.setup.grants,
            now_unix_ms,
            self.engine.ticking(),
        );
        let mut store = Store::new(self.engine.wasm(), state);
        store.limiter(|state| &mut state.limiter);
        arm(&mut store, deadline);
        store.set_hostcall_fuel(handover_bytes_max);
        store
    }

    /// Runs to the end, or for a guest that can wait to the deadline: none means that it passed.
    async fn within<T>(&self, deadline: Duration, run: impl Future<Output = T>) -> Option<T> {
        if self.waits {
            tokio::time::timeout(deadline, run).await.ok()
        } else {
            Some(run.await)
        }
    }

    /// Instantiates, and configures unless the guest holds its configuration already.
    async fn start(&self, store: &mut Store<State>) -> Result<Instance, Ended> {
        let instance = if self.waits {
            self.instance.instantiate_async(&mut *store).await?
        } else {
            self.instance.instantiate(&mut *store)?
        };
        if let Some(configure) = &self.configure {
            let params = (self.setup.config_json.as_str(),);
            let (configured,): ConfigureResult = self
                .call::<ConfigureParams<'_>, _>(store, &instance, (CONFIGURABLE, configure), params)
                .await?;
            match configured {
                WireConfigured::Ready => store.data_mut().configured(),
                WireConfigured::Invalid(text) => {
                    return Err(Ended::Unconfigured(escaped(text.as_bytes(), REFUSAL_BYTES_MAX)));
                }
            }
        }
        Ok(instance)
    }

    /// What is called later has the types of the contract.
    fn check_types(&self, store: &mut Store<State>, instance: &Instance) -> Result<(), Ended> {
        instance
            .get_typed_func::<AuthorizeParams<'static>, AuthorizeResult>(&mut *store, &self.authorize)
            .map_err(|error| Ended::WrongType(AUTHORIZER, error))?;
        if let Some(visible) = &self.visible {
            instance
                .get_typed_func::<VisibleParams<'static>, VisibleResult>(store, visible)
                .map_err(|error| Ended::WrongType(VISIBILITY, error))?;
        }
        Ok(())
    }

    async fn authorize(&self, store: &mut Store<State>, call: &Call<'_>) -> Result<Decision, Ended> {
        let instance = self.start(store).await?;
        let params = (call.name, call.args_json, WireContext::of(call));
        let (decision,): AuthorizeResult = self
            .call::<AuthorizeParams<'_>, _>(store, &instance, (AUTHORIZER, &self.authorize), params)
            .await?;
        Ok(match decision {
            WireDecision::Allow => Decision::Allow,
            WireDecision::Ask(prompt) => Decision::Ask(prompt),
            WireDecision::Deny(reason) => Decision::Deny(reason),
        })
    }

    /// Calls a function of an interface.
    async fn call<Params, Answer>(
        &self,
        store: &mut Store<State>,
        instance: &Instance,
        (interface, function): (&'static str, &ComponentExportIndex),
        params: Params,
    ) -> Result<Answer, Ended>
    where
        Params: ComponentNamedList + Lower,
        Answer: ComponentNamedList + Lift + 'static,
    {
        let function = instance
            .get_typed_func::<Params, Answer>(&mut *store, function)
            .map_err(|error| Ended::WrongType(interface, error))?;
        let answer = if self.waits {
            function.call_async(store, params).await
        } else {
            function.call(store, params)
        };
        Ok(answer?)
    }

    fn conclude<T>(&self, store: &Store<State>, ended: Option<Result<T, Ended>>) -> Result<T, Failure> {
        // Whatever the guest answered: it was refused memory, so the answer may rest on less than
        // it needed.
        if ended.is_none() || store.data().limiter.refused().is_some() {
            return Err(self.failure(store, None));
        }
        match ended {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(Ended::Error(error))) => Err(self.failure(store, Some(&error))),
            Some(Err(Ended::WrongType(_, error))) => Err((Fault::Internal, format!("{error:#}"))),
            Some(Err(Ended::Unconfigured(text))) => Err((
                Fault::Load,
                format!("refused the configuration that it took before: {text}"),
            )),
            None => Err(self.failure(store, None)),
        }
    }

    fn checked(&self, decision: Decision) -> Result<Decision, Failure> {
        let bytes = match &decision {
            Decision::Allow => 0,
            Decision::Ask(text) | Decision::Deny(text) => text.len(),
        };
        let max = self.setup.limits.output_bytes_max;
        if max < bytes {
            return Err((
                Fault::Output,
                format!("answered with {bytes} bytes; the limit is {max}"),
            ));
        }
        Ok(decision)
    }

    /// Why there is no decision. Without an `error` the guest was refused memory, or waited for
    /// too long.
    fn failure(&self, store: &Store<State>, error: Option<&wasmtime::Error>) -> Failure {
        if let Some(refused) = store.data().limiter.refused() {
            return (Fault::Memory, refused.to_owned());
        }
        let Some(error) = error else {
            return (
                Fault::Timeout,
                "waited inside a host call past the deadline".to_owned(),
            );
        };
        let detail = format!("{error:#}");
        let fault = match error.downcast_ref::<Trap>() {
            Some(Trap::Interrupt) => Fault::Timeout,
            Some(_) => Fault::Trap,
            None if error.is::<PoolConcurrencyLimitError>() => Fault::Internal,
            None if error.is::<Utf8Error>() => Fault::Output,
            None if NO_ANSWER.iter().any(|text| detail.contains(text)) => Fault::Output,
            None => Fault::Trap,
        };
        (fault, detail)
    }

    /// Puts into the log what the guest wrote to its standard streams, if that is granted.
    fn report(&self, store: &Store<State>) {
        let (policy, written) = (&self.setup.name, store.data().log.take());
        let dropped = written.dropped;
        if !written.bytes.is_empty() {
            let text = escaped(&written.bytes, self.setup.limits.log_bytes_max);
            tracing::info!(policy, dropped, "the policy wrote: {text}");
        } else if 0 < dropped {
            tracing::debug!(policy, dropped, "output of the policy is not kept");
        }
    }
}

/// Ends whatever runs in `store` from now on when `deadline` has passed.
#[expect(
    clippy::disallowed_methods,
    reason = "a guest's deadline is real time, as its ticks are"
)]
pub(super) fn arm(store: &mut Store<State>, deadline: Duration) {
    store.set_epoch_deadline(Engine::ticks(deadline));
    let start = std::time::Instant::now();
    // Ticks that were late come all at once, and must not cost a guest the time it has left.
    store.epoch_deadline_callback(move |_| {
        let left = deadline.saturating_sub(start.elapsed());
        Ok(if left.is_zero() {
            UpdateDeadline::Interrupt
        } else {
            UpdateDeadline::Continue(Engine::ticks(left))
        })
    });
}

/// Runs `judgement`; a panic of the host in it becomes a fault.
pub(super) async fn caught<T>(judgement: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let mut judgement = std::pin::pin!(judgement);
    std::future::poll_fn(|context| {
        // Sound to go on after a panic: what it interrupted is dropped with the judgement, and
        // nothing outside it was being changed.
        let poll = AssertUnwindSafe(|| judgement.as_mut().poll(context));
        std::panic::catch_unwind(poll).unwrap_or_else(|panic| {
            let text = panic
                .downcast_ref::<&str>()
                .copied()
                .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
                .unwrap_or("no text");
            Poll::Ready(Err((Fault::Internal, format!("the host panicked: {text}"))))
        })
    })
    .await
}
