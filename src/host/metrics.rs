//! What a gate counts, for Prometheus: what was decided and how long it took, from the very records that are
//! audited, and what is in force.
//!
//! Label values come from configuration or from a fixed list, never from a client or an upstream, so their number
//! is bounded.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::audit::{Observer, Record};
use crate::door::http::EndpointCounts;
use crate::policy::reload::Status;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerdictLabels {
    server: String,
    seam: &'static str,
    decision: &'static str,
    code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PolicyLabels {
    seam: &'static str,
    policy: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReloadLabels {
    seam: &'static str,
    policy: String,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndpointLabels {
    endpoint: String,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// The counters of one gate.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    verdicts: Family<VerdictLabels, Counter>,
    judgements: Histograms<PolicyLabels>,
    questions: Family<OutcomeLabels, Counter>,
    waits: Histogram,
    outcomes: Family<OutcomeLabels, Counter>,
    upstream: Histogram,
    audit_failures: Counter,
}

/// From 2 µs to about 0.5 s: a judgement takes microseconds, and at most its deadline.
fn judgement_buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.000_002, 2.5, 14))
}

impl Metrics {
    /// Counters that have counted nothing yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let mut metrics = Self {
            registry: Registry::with_prefix("gatewright"),
            verdicts: Family::default(),
            judgements: Family::new_with_constructor(judgement_buckets),
            questions: Family::default(),
            waits: Histogram::new(exponential_buckets(0.25, 2.0, 10)),
            outcomes: Family::default(),
            upstream: Histogram::new(exponential_buckets(0.001, 2.5, 14)),
            audit_failures: Counter::default(),
        };
        metrics.register();
        Arc::new(metrics)
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register("verdicts", "Requests that were judged", self.verdicts.clone());
        registry.register_with_unit(
            "judgement",
            "How long one policy took for one request",
            Unit::Seconds,
            self.judgements.clone(),
        );
        registry.register(
            "questions",
            "Questions that a person was asked",
            self.questions.clone(),
        );
        registry.register_with_unit(
            "question_wait",
            "How long a person took to answer",
            Unit::Seconds,
            self.waits.clone(),
        );
        registry.register(
            "forwarded",
            "Forwarded requests that have ended",
            self.outcomes.clone(),
        );
        registry.register_with_unit(
            "upstream",
            "How long a forwarded request took",
            Unit::Seconds,
            self.upstream.clone(),
        );
        registry.register(
            "audit_failures",
            "Records that could not be written",
            self.audit_failures.clone(),
        );
    }

    /// Everything as text in the OpenMetrics format.
    #[must_use]
    pub fn text(&self, status: &Status, endpoints: &[EndpointCounts]) -> String {
        let mut text = String::new();
        if let Err(error) = self.write(&mut text, status, endpoints) {
            tracing::error!(%error, "the metrics cannot be written");
        }
        text
    }

    fn write(&self, text: &mut String, status: &Status, endpoints: &[EndpointCounts]) -> fmt::Result {
        encode_registry(text, &self.registry)?;
        encode_registry(text, &in_force(status, endpoints))?;
        encode_eof(text)
    }
}

/// What holds now. Made anew each time, so that nothing is told of a policy that is gone.
fn in_force(status: &Status, endpoints: &[EndpointCounts]) -> Registry {
    let mut registry = Registry::with_prefix("gatewright");
    policies(&mut registry, status);
    let reloads = Family::<ResultLabels, Counter>::default();
    for (result, count) in [("ok", status.replaced_ok), ("failed", status.replaced_failed)] {
        reloads.get_or_create(&ResultLabels { result }).inc_by(count);
    }
    registry.register(
        "reloads",
        "Orders to reload the configuration that were followed, or refused",
        reloads,
    );
    let sessions = Family::<EndpointLabels, Gauge<u64, AtomicU64>>::default();
    let streams = Family::<EndpointLabels, Gauge<u64, AtomicU64>>::default();
    for counts in endpoints {
        let endpoint = EndpointLabels {
            endpoint: counts.path.clone(),
        };
        sessions.get_or_create(&endpoint).set(counts.sessions as u64);
        streams.get_or_create(&endpoint).set(counts.streams as u64);
    }
    registry.register("sessions", "Sessions of the 2025 revisions", sessions);
    registry.register("streams", "Streams that are open", streams);
    registry
}

/// A policy that stands in a chain twice is counted in sum.
fn policies(registry: &mut Registry, status: &Status) {
    let reloads = Family::<ReloadLabels, Counter>::default();
    let stale = Family::<PolicyLabels, Gauge>::default();
    for policy in &status.policies {
        let counts = [("ok", policy.reloads_ok), ("failed", policy.reloads_failed)];
        for (result, count) in counts {
            let labels = ReloadLabels {
                seam: policy.seam.as_str(),
                policy: policy.policy.clone(),
                result,
            };
            reloads.get_or_create(&labels).inc_by(count);
        }
        let labels = PolicyLabels {
            seam: policy.seam.as_str(),
            policy: policy.policy.clone(),
        };
        stale
            .get_or_create(&labels)
            .inc_by(i64::from(policy.failure.is_some()));
    }
    registry.register(
        "policy_reloads",
        "Policy files that were put in force, or could not be",
        reloads,
    );
    registry.register(
        "policy_stale",
        "1 while a policy's file holds something that could not be put in force",
        stale,
    );
}

impl Observer for Metrics {
    fn recorded(&self, record: &Record<'_>, written: bool) {
        if !written {
            self.audit_failures.inc();
        }
        let (subject, policies) = match record {
            Record::Question(question) => (&question.subject, question.policies),
            Record::Verdict(verdict) => {
                self.verdicts
                    .get_or_create(&VerdictLabels {
                        server: verdict.subject.server.to_owned(),
                        seam: verdict.subject.seam.as_str(),
                        decision: verdict.decision,
                        code: verdict.code.to_owned(),
                    })
                    .inc();
                if let Some(ask) = &verdict.ask {
                    let outcome = ask.outcome.to_owned();
                    self.questions.get_or_create(&OutcomeLabels { outcome }).inc();
                    self.waits.observe(seconds(ask.waited_ms, 1e3));
                }
                (&verdict.subject, verdict.policies)
            }
            Record::Outcome(outcome) => {
                self.upstream.observe(seconds(outcome.took_ms, 1e3));
                let outcome = outcome.outcome.to_owned();
                self.outcomes.get_or_create(&OutcomeLabels { outcome }).inc();
                return;
            }
        };
        for policy in policies {
            self.judgements
                .get_or_create(&PolicyLabels {
                    seam: subject.seam.as_str(),
                    policy: policy.policy.clone(),
                })
                .observe(seconds(policy.micros, 1e6));
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a time of that length needs no precision"
)]
fn seconds(count: u64, in_a_second: f64) -> f64 {
    count as f64 / in_a_second
}
