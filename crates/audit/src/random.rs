//! Random identifiers. Not secrets.

/// A random (version 4) UUID.
pub fn uuid() -> String {
    let mut b = [0u8; 16];
    // getrandom with 16 bytes never comes back short once the pool is ready; before that it waits.
    if rustix::rand::getrandom(&mut b, rustix::rand::GetRandomFlags::empty()).is_err() {
        b[..8].copy_from_slice(&(std::process::id() as u64).to_ne_bytes());
    }
    b[6] = b[6] & 0x0f | 0x40;
    b[8] = b[8] & 0x3f | 0x80;
    let hex: String = b.iter().map(|x| format!("{x:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
