//! What `crate::http` needs of the gateway, for one connection of a program.

use std::sync::Arc;

use bytes::Bytes;

use crate::decide::refusal::{EgressRefusal, NetworkReason};
use crate::decide::rules::{EgressTarget, Grant};
use crate::http::{BoxedStream, BoxedTask, Dial, GatewayInterface, Tunnel, TunnelDial};
use crate::report::event::NetworkEvent;
use crate::serve::captured::{self, UnusedUpstream};
use crate::serve::client_connection::ClientConnection;
use crate::serve::upstream_connection::UpstreamConnection;

impl GatewayInterface for ClientConnection {
    fn decide(&self, target: &EgressTarget, port: u16) -> Result<Grant, EgressRefusal> {
        self.sandbox.decide(&self.sandbox.named_target(target)?, port)
    }

    fn request(&self, grant: &Grant, method: &str, path: &str) -> Result<(), EgressRefusal> {
        self.sandbox.rules.request(grant, method, path)
    }

    fn dial(&self, target: &EgressTarget, port: u16, grant: &Grant) -> Dial {
        let connecting = connecting(self, target, port, grant);
        Box::pin(async move { connecting.await.map(|(_, upstream)| upstream.dialed()) })
    }

    fn dial_tunnel(&self, target: &EgressTarget, port: u16, grant: &Grant) -> TunnelDial {
        let (connecting, grant) = (connecting(self, target, port, grant), grant.clone());
        Box::pin(async move {
            let (target, upstream) = connecting.await?;
            let (client, upstream) = (Arc::clone(&upstream.client), UnusedUpstream::from(upstream));
            Ok(Box::new(move |stream: BoxedStream, first: Bytes| -> BoxedTask {
                // The same stream as this connection's, which is read and written from here on without the box around it.
                drop(stream);
                Box::pin(captured::serve(client, target, port, grant, first, upstream.into_used()))
            }) as Tunnel)
        })
    }

    fn event(&self, event: NetworkEvent) {
        self.report(event);
    }
}

/// Connects to upstream for a program's connection. The target is that of the connection, by its name where it has one.
fn connecting(
    client: &ClientConnection,
    target: &EgressTarget,
    port: u16,
    grant: &Grant,
) -> impl Future<Output = Result<(EgressTarget, UpstreamConnection), EgressRefusal>> + Send + 'static {
    let (alive, grant) = (client.upgrade(), grant.clone());
    let target = client.sandbox.named_target(target);
    async move {
        let client = alive.ok_or_else(|| EgressRefusal::because(NetworkReason::Gateway, "the connection is gone"))?;
        let target = target?;
        let upstream = client.connect(target.clone(), port, grant).await;
        let upstream = upstream.map_err(|(refusal, address)| EgressRefusal { address, ..refusal })?;
        Ok((target, upstream))
    }
}
