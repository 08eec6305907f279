//! What `crate::http` needs of the gateway, for one connection of a program.

use std::sync::Arc;

use bytes::Bytes;

use crate::decide::refusal::{Reason, Refusal};
use crate::decide::rules::{Grant, Target};
use crate::http::{BoxedTask, Dial, GatewayInterface, Io};
use crate::report::event::Event;
use crate::serve::captured;
use crate::serve::client_connection::ClientConnection;

impl GatewayInterface for ClientConnection {
    fn decide(&self, target: &Target, port: u16) -> Result<Grant, Refusal> {
        self.sandbox.decide(&self.sandbox.named_target(target)?, port)
    }

    fn request(&self, grant: &Grant, method: &str, path: &str) -> Result<(), Refusal> {
        self.sandbox.rules.request(grant, method, path)
    }

    fn dial(&self, target: &Target, port: u16, grant: &Grant) -> Dial {
        let (client, grant) = (self.upgrade(), grant.clone());
        let target = self.sandbox.named_target(target);
        Box::pin(async move {
            let client = client.ok_or_else(|| Refusal::because(Reason::Gateway, "the connection is gone"))?;
            let upstream = client.connect(target?, port, grant).await;
            upstream.map(|upstream| upstream.dialed()).map_err(|(refusal, _)| refusal)
        })
    }

    fn tunnel(self: Arc<Self>, client: Io, first: Bytes, target: Target, port: u16, grant: Grant) -> BoxedTask {
        // The same stream as this connection's, which is read and written from here on without the box around it.
        drop(client);
        Box::pin(async move {
            match self.sandbox.named_target(&target) {
                Ok(target) => captured::serve(self, target, port, grant, first, None).await,
                Err(refusal) => self.refuse(Some(&target), port, refusal),
            }
        })
    }

    fn event(&self, event: Event) {
        self.report(event);
    }
}
