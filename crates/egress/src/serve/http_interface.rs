//! What `crate::http` needs of the gateway, for one connection of a program.

use std::sync::Arc;

use bytes::Bytes;

use crate::decide::refusal::{EgressRefusal, NetworkReason};
use crate::decide::rules::{EgressTarget, Grant};
use crate::http::{BoxedStream, BoxedTask, Dial, GatewayInterface};
use crate::report::event::NetworkEvent;
use crate::serve::captured;
use crate::serve::client_connection::ClientConnection;

impl GatewayInterface for ClientConnection {
    fn decide(&self, target: &EgressTarget, port: u16) -> Result<Grant, EgressRefusal> {
        self.sandbox.decide(&self.sandbox.named_target(target)?, port)
    }

    fn request(&self, grant: &Grant, method: &str, path: &str) -> Result<(), EgressRefusal> {
        self.sandbox.rules.request(grant, method, path)
    }

    fn dial(&self, target: &EgressTarget, port: u16, grant: &Grant) -> Dial {
        let (client, grant) = (self.upgrade(), grant.clone());
        let target = self.sandbox.named_target(target);
        Box::pin(async move {
            let client =
                client.ok_or_else(|| EgressRefusal::because(NetworkReason::Gateway, "the connection is gone"))?;
            let upstream = client.connect(target?, port, grant).await;
            upstream
                .map(|upstream| upstream.dialed())
                .map_err(|(refusal, address)| EgressRefusal { address, ..refusal })
        })
    }

    fn tunnel(
        self: Arc<Self>,
        client: BoxedStream,
        first: Bytes,
        target: EgressTarget,
        port: u16,
        grant: Grant,
    ) -> BoxedTask {
        // The same stream as this connection's, which is read and written from here on without the box around it.
        drop(client);
        Box::pin(async move {
            match self.sandbox.named_target(&target) {
                Ok(target) => captured::serve(self, target, port, grant, first, None).await,
                Err(refusal) => self.refuse(Some(&target), port, refusal),
            }
        })
    }

    fn event(&self, event: NetworkEvent) {
        self.report(event);
    }
}
