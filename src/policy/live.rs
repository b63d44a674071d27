//! A chain that is replaced while it judges.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::chain::Chain;
use crate::seam::{Authorizer, Call, Judgement};
use crate::vocabulary::Digest;

/// The chain in force. A judgement finishes on the chain that it started with.
#[derive(Debug)]
pub struct LiveChain {
    chain: ArcSwap<Chain>,
}

impl LiveChain {
    /// A chain that is in force from now on.
    #[must_use]
    pub fn new(chain: Chain) -> Arc<Self> {
        Arc::new(Self {
            chain: ArcSwap::from_pointee(chain),
        })
    }

    /// Puts another chain in force, between two judgements.
    pub fn replace(&self, chain: Chain) {
        self.chain.store(Arc::new(chain));
    }
}

impl Authorizer for LiveChain {
    fn judge<'a>(&'a self, call: &'a Call<'a>) -> Judgement<'a> {
        let chain = self.chain.load_full();
        Box::pin(async move { chain.judge(call).await })
    }

    fn revision(&self) -> Digest {
        self.chain.load().revision()
    }
}
