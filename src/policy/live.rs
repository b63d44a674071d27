//! A chain that is replaced while it judges.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::chain::Chain;
use crate::seam::{Authorizer, Call, Judgement, Listing, Showing};
use crate::vocabulary::Digest;

/// The chain in force. A judgement finishes on the chain that it started with.
#[derive(Debug)]
pub struct LiveChain {
    chain: ArcSwap<Chain>,
    hiding: watch::Sender<Option<Digest>>,
}

impl LiveChain {
    /// A chain that is in force from now on.
    #[must_use]
    pub fn new(chain: Chain) -> Arc<Self> {
        Arc::new(Self {
            hiding: watch::Sender::new(chain.hiding_revision()),
            chain: ArcSwap::from_pointee(chain),
        })
    }

    /// Puts another chain in force, between two judgements.
    pub fn replace(&self, chain: Chain) {
        let hiding = chain.hiding_revision();
        self.chain.store(Arc::new(chain));
        // Told once it is in force, so that whoever then asks for the list gets the new one.
        self.hiding.send_if_modified(|told| {
            let changed = *told != hiding;
            *told = hiding;
            changed
        });
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

    fn show<'a>(&'a self, listing: &'a Listing<'a>) -> Showing<'a> {
        let chain = self.chain.load_full();
        Box::pin(async move { chain.show(listing).await })
    }

    fn hiding(&self) -> watch::Receiver<Option<Digest>> {
        self.hiding.subscribe()
    }
}
