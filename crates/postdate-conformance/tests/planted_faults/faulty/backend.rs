//! Setting up and opening.

use std::sync::Arc;

use async_trait::async_trait;
use postdate_core::{
    Backend, Capabilities, ClaimKind, DelayedMessageStore, EndpointName, Memory, MessageId, Operation,
    StoreError, StoreErrorKind, TransactionMode,
};

use super::{
    Fault,
    meddled::{Meddlings, Schema},
    store::FaultyStore,
};

#[derive(Debug)]
pub(crate) struct FaultyBackend {
    pub(crate) memory: Memory,
    pub(crate) fault: Fault,
    pub(crate) meddlings: Meddlings,
}

impl FaultyBackend {
    fn endpoint(&self, endpoint: &EndpointName) -> EndpointName {
        let name = match self.fault {
            Fault::FoldsEndpoints => endpoint.as_str().to_ascii_lowercase(),
            Fault::CutsEndpointNames => endpoint.as_str().chars().take(63).collect(),
            _ => return endpoint.clone(),
        };
        EndpointName::new(name).expect("what was a name is one in lower case, and cut off")
    }

    fn check_schema(&self, operation: Operation) -> Result<(), StoreError> {
        match self.meddlings.lock().schema {
            Schema::Newer if self.fault != Fault::AcceptsANewerSchema => {
                Err(refusal(StoreErrorKind::TooNew, operation))
            }
            Schema::Older if operation == Operation::Open => {
                Err(refusal(StoreErrorKind::NotSetUp, operation))
            }
            _ => Ok(()),
        }
    }

    /// Refuses what needs tables to be made by a user who may not.
    fn make_tables(&self, endpoint: &EndpointName, operation: Operation) -> Result<(), StoreError> {
        let mut meddled = self.meddlings.lock();
        let kind = match self.fault {
            Fault::BlamesNobodyForAMissingRight => StoreErrorKind::Other,
            _ => StoreErrorKind::Configuration,
        };
        match (meddled.set_up.contains(endpoint), self.fault) {
            (true, Fault::SetsUpOnce) => Err(refusal(StoreErrorKind::Other, operation)),
            (true, fault) if fault != Fault::MakesTablesWhenOpened => Ok(()),
            _ if meddled.no_right => Err(refusal(kind, operation)),
            _ => {
                meddled.set_up.insert(endpoint.clone());
                Ok(())
            }
        }
    }
}

#[async_trait]
impl Backend for FaultyBackend {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.memory.capabilities();
        match self.fault {
            Fault::AcceptsAnyMode => capabilities.modes = &[TransactionMode::ReceiveOnly],
            Fault::SettlesAtOnce => capabilities.claim = ClaimKind::Transaction,
            _ => {}
        }
        capabilities
    }

    async fn set_up(&self, endpoint: &EndpointName) -> Result<(), StoreError> {
        let endpoint = self.endpoint(endpoint);
        self.check_schema(Operation::SetUp)?;
        self.make_tables(&endpoint, Operation::SetUp)?;
        self.memory.set_up(&endpoint).await?;
        if std::mem::take(&mut self.meddlings.lock().schema) == Schema::Older
            && self.fault == Fault::LosesMessagesWithAnOlderSchema
        {
            let store = self.memory.open(&endpoint, TransactionMode::None).await?;
            store.cancel(&[MessageId::new("m00001").expect("the text is an id")]).await?;
        }
        Ok(())
    }

    async fn open(
        &self,
        endpoint: &EndpointName,
        mode: TransactionMode,
    ) -> Result<Arc<dyn DelayedMessageStore>, StoreError> {
        let endpoint = self.endpoint(endpoint);
        self.check_schema(Operation::Open)?;
        if self.fault == Fault::MakesTablesWhenOpened {
            self.make_tables(&endpoint, Operation::Open)?;
        }
        let mode = match self.fault {
            Fault::SettlesOnCommitOnly => TransactionMode::TransactionScope,
            Fault::SettlesAtOnce => TransactionMode::ReceiveOnly,
            _ => mode,
        };
        let store = self.memory.open(&endpoint, mode).await?;
        Ok(Arc::new(FaultyStore::new(store, endpoint, self.fault, self.meddlings.clone())))
    }
}

fn refusal(kind: StoreErrorKind, operation: Operation) -> StoreError {
    StoreError::new(kind, operation, "faulty", "refused")
}
