//! What a program without a C library needs beside its entry point: the memory routines and the panic handler.

use crate::{report, sys, wire};

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // Fail closed: init's end is the end of the whole tree.
    report::send(&wire::WireStatus {
        kind: wire::status::FAILED,
        step: wire::step::init::PANIC.step,
        index: wire::step::init::PANIC.index,
        value: 0,
        ..wire::WireStatus::default()
    });
    sys::exit(1)
}

/// Referred to by the prebuilt core library; never called, since panics abort.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// As above.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    sys::exit(1)
}

/// # Safety
/// As memcpy(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller promises n readable and n writable bytes that do not overlap.
    unsafe {
        core::arch::asm!("rep movsb", inout("rcx") n => _, inout("rdi") dst => _, inout("rsi") src => _, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    for i in 0..n {
        // SAFETY: as above; volatile so that the loop is not turned into a call of itself.
        unsafe { dst.add(i).write_volatile(src.add(i).read_volatile()) };
    }
    dst
}

/// # Safety
/// As memmove(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    if (dst as usize) <= (src as usize) {
        for i in 0..n {
            // SAFETY: the caller promises n readable and n writable bytes; forward is right when dst is below src.
            unsafe { dst.add(i).write_volatile(src.add(i).read_volatile()) };
        }
    } else {
        for i in (0..n).rev() {
            // SAFETY: as above; backward is right when dst is above src.
            unsafe { dst.add(i).write_volatile(src.add(i).read_volatile()) };
        }
    }
    dst
}

/// # Safety
/// As memset(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(dst: *mut u8, byte: i32, n: usize) -> *mut u8 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller promises n writable bytes.
    unsafe {
        core::arch::asm!("rep stosb", inout("rcx") n => _, inout("rdi") dst => _, in("al") byte as u8, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    for i in 0..n {
        // SAFETY: as above.
        unsafe { dst.add(i).write_volatile(byte as u8) };
    }
    dst
}

/// # Safety
/// As memcmp(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
    for i in 0..n {
        // SAFETY: the caller promises n readable bytes at both.
        let (x, y) = unsafe { (a.add(i).read_volatile(), b.add(i).read_volatile()) };
        if x != y {
            return x as i32 - y as i32;
        }
    }
    0
}

/// # Safety
/// As bcmp(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
    // SAFETY: the same promise.
    unsafe { memcmp(a, b, n) }
}

/// # Safety
/// As strlen(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(s: *const u8) -> usize {
    let mut n = 0;
    // SAFETY: the caller promises a NUL.
    while unsafe { s.add(n).read_volatile() } != 0 {
        n += 1;
    }
    n
}
