//! Any bytes as a policy: reading never panics, and what is accepted reads back as itself.
#![no_main]

use cofferdam_policy::Policy;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    match Policy::from_json(text) {
        Ok(policy) => {
            assert_eq!(policy.validate(), Ok(()));
            assert_eq!(Policy::from_json(policy.to_json_pretty().as_bytes()), Ok(policy));
        }
        Err(errors) => {
            assert!(!errors.0.is_empty());
            assert!(errors.to_string().chars().all(|c| c == '\n' || !c.is_control()));
        }
    }
});
