//! Pulls from a registry of our own on loopback.

use cofferdam_test_containers::Registry;

use super::*;
use crate::failure::FailedStep;

#[test]
fn an_image_is_pulled_with_progress_and_then_is_there() {
    let work = work();
    for Pair { kind, engine, .. } in pairs() {
        // Unlike every other: of a layer that it knows the engine asks for nothing.
        let (root, archive) = (work.path().join(format!("root-{kind:?}")), work.path().join("layer.tar"));
        image::root(&root, &[]).expect("a root");
        std::fs::write(root.join("etc/once"), cofferdam_audit::random::uuid()).expect("a file");
        image::tarball(&root, &archive).expect("a tarball");
        let layer = std::fs::read(&archive).expect("a layer");
        let name = format!("cofferdam/pulled-{}", std::process::id());
        let registry = Registry::serve(layer.clone(), &name, None).expect("a registry");
        let told = std::cell::RefCell::new(Vec::new());
        let reference = registry.tagged("1");
        let root = Rootfs::Image(reference.clone());
        let ready = engine
            .prepare(&root, &[], &|progress| told.borrow_mut().push(progress))
            .unwrap_or_else(|failure| panic!("{kind:?} {failure:?}"));
        assert_eq!(ready.volumes, ["/data"], "{kind:?}");
        let told = told.into_inner();
        assert!(told.iter().all(|progress| progress.what == format!("pulling {reference}")), "{told:?}");
        let bytes: Vec<u64> = told.iter().map(|progress| progress.done).collect();
        assert!(bytes.is_sorted() && bytes.len() > 3, "{kind:?}: it grows: {bytes:?}");
        // Podman tells through this interface which layers there are, and of none how much has come.
        if kind == Kind::Docker {
            let last = told.last().expect("told");
            assert_eq!((last.done, last.total), (layer.len() as u64, Some(layer.len() as u64)), "{kind:?}");
        }
        // Now it is there: nobody is asked.
        let asked = registry.asked();
        assert_eq!(engine.prepare(&root, &[], &quiet).expect("there").reference, ready.reference);
        assert_eq!(registry.asked(), asked, "{kind:?}");
        let out = work.path().join(format!("{kind:?}"));
        run(&engine, &spec(root, &out, "echo pulled > /out/said"));
        assert_eq!(said(&out, "said"), "pulled\n", "{kind:?}");
        // By digest as well, and not what the registry does not have.
        let found = engine.prepare(&Rootfs::Image(registry.by_digest()), &[], &quiet).expect("there");
        assert_eq!(found.reference, ready.reference, "{kind:?}");
        let missing = registry.tagged("2");
        let failure = engine.prepare(&Rootfs::Image(missing), &[], &quiet).expect_err("there is no such tag");
        assert!(failure.step == FailedStep::Image && failure.message.contains("manifest"), "{kind:?} {failure:?}");
        images::untag(&engine.known().expect("known").client, &reference);
    }
}
