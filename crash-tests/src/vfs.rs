//! The VFS in front of the system's.
//!
//! It decides nothing: what a call is to do is asked of [`DiskFile`], which is safe code. Files that are on no
//! [`Disk`](crate::Disk) are opened as the system's own and never seen again.
#![expect(unsafe_code, reason = "to SQLite a file system is a table of C functions")]

use std::{
    ffi::{CStr, OsStr, c_char, c_int, c_void},
    os::unix::ffi::OsStrExt,
    path::Path,
    ptr, slice,
    sync::Once,
};

use rusqlite::ffi::{self, sqlite3_file, sqlite3_int64, sqlite3_io_methods, sqlite3_vfs};

use crate::{
    disk::{self, DiskFile},
    fault::Call,
};

/// What SQLite keeps for an open file of a disk. The system's file stands behind it in the same allocation.
#[repr(C)]
struct Handle {
    base: sqlite3_file,
    file: *mut DiskFile,
}

/// Makes it the default VFS of the process.
pub(crate) fn install() {
    static INSTALLED: Once = Once::new();
    // SAFETY: the system's VFS lives as long as the process, and so does the copy, which is leaked before SQLite
    // learns of it. The functions that are copied may be called with it: SQLite's own VFSs share them under several
    // names, and only `xOpen` reads what differs.
    INSTALLED.call_once(|| unsafe {
        assert_eq!(ffi::sqlite3_initialize(), ffi::SQLITE_OK);
        let system = ffi::sqlite3_vfs_find(ptr::null());
        let mut vfs = *system;
        vfs.szOsFile += c_int::try_from(size_of::<Handle>()).expect("two pointers are small");
        vfs.zName = c"postdate-disk".as_ptr();
        vfs.pAppData = system.cast();
        vfs.pNext = ptr::null_mut();
        vfs.xOpen = Some(open);
        vfs.xDelete = Some(delete);
        assert_eq!(ffi::sqlite3_vfs_register(Box::leak(Box::new(vfs)), 1), ffi::SQLITE_OK);
    });
}

static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    // Without `xFetch`: SQLite maps no file into memory behind our back.
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

/// # Safety
/// `file` must be one that [`open`] has put on a disk and that is not closed. All functions in [`METHODS`] require
/// that, and SQLite keeps it: it finds them by such a file alone.
unsafe fn disk_file<'a>(file: *mut sqlite3_file) -> &'a DiskFile {
    // SAFETY: `open` has put a leaked box there, and `close`, which takes it back, is the last call for a file.
    unsafe { &*(*file.cast::<Handle>()).file }
}

/// # Safety
/// `file` must have been allocated for our VFS: with room for the system's file behind a [`Handle`].
unsafe fn system_file(file: *mut sqlite3_file) -> *mut sqlite3_file {
    // SAFETY: within the allocation, and aligned: the size of a handle is a multiple of a pointer's.
    unsafe { file.cast::<Handle>().add(1).cast() }
}

/// Calls a method of the system's file.
macro_rules! system {
    ($file:ident.$method:ident($($argument:expr),*)) => {{
        let file = system_file($file);
        match (*(*file).pMethods).$method {
            Some(method) => method(file, $($argument),*),
            None => ffi::SQLITE_MISUSE,
        }
    }};
}

/// Functions that hand a call on to the system's file, some of them only if the disk lets them.
macro_rules! handed_on {
    ($(fn $name:ident($($argument:ident: $type:ty),*) = $method:ident $(if $call:expr)?;)*) => {$(
        unsafe extern "C" fn $name(file: *mut sqlite3_file, $($argument: $type),*) -> c_int {
            // SAFETY: SQLite calls this with an open file of ours; the arguments are the system's business.
            unsafe {
                $(if let Err(code) = disk_file(file).ask($call) {
                    return code;
                })?
                system!(file.$method($($argument),*))
            }
        }
    )*};
}

handed_on! {
    fn read(buffer: *mut c_void, amount: c_int, offset: sqlite3_int64) = xRead if Call::Read;
    fn file_size(size: *mut sqlite3_int64) = xFileSize if Call::Size;
    fn lock(level: c_int) = xLock if Call::Lock;
    fn unlock(level: c_int) = xUnlock;
    fn check_reserved_lock(answer: *mut c_int) = xCheckReservedLock;
    fn file_control(operation: c_int, argument: *mut c_void) = xFileControl;
    fn sector_size() = xSectorSize;
    fn device_characteristics() = xDeviceCharacteristics;
    fn shm_map(region: c_int, size: c_int, extend: c_int, answer: *mut *mut c_void) = xShmMap if Call::MapShared;
    fn shm_unmap(delete: c_int) = xShmUnmap;
}

unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: the VFS is ours, so its data is the system's VFS; `name` is null or a C string; `file` has room for what
    // our VFS asks for, which is more than the system's asks for.
    unsafe {
        let system = (*vfs).pAppData.cast::<sqlite3_vfs>();
        let Some(open) = (*system).xOpen else { return ffi::SQLITE_CANTOPEN };
        let Some((path, disk)) = path(name).and_then(|path| Some((path, disk::of(path)?))) else {
            return open(system, name, file, flags, out);
        };
        // Null means that there is nothing to close.
        (*file).pMethods = ptr::null();
        if let Err(code) = disk.ask(Call::Open) {
            return code;
        }
        let code = open(system, name, system_file(file), flags, out);
        if code == ffi::SQLITE_OK {
            let opened = DiskFile::new(disk, path, flags);
            (*file.cast::<Handle>()).file = Box::into_raw(Box::new(opened));
            (*file).pMethods = &METHODS;
        }
        code
    }
}

unsafe extern "C" fn delete(vfs: *mut sqlite3_vfs, name: *const c_char, sync_directory: c_int) -> c_int {
    // SAFETY: as in `open`.
    unsafe {
        let system = (*vfs).pAppData.cast::<sqlite3_vfs>();
        let Some(delete) = (*system).xDelete else { return ffi::SQLITE_IOERR_DELETE };
        let Some((path, disk)) = path(name).and_then(|path| Some((path, disk::of(path)?))) else {
            return delete(system, name, sync_directory);
        };
        if let Err(code) = disk.ask(Call::Delete) {
            return code;
        }
        let code = delete(system, name, 0);
        if code == ffi::SQLITE_OK {
            disk.deleted(path, sync_directory != 0);
        }
        code
    }
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: an open file of ours, and this is the last call for it: nobody else has the box.
    unsafe {
        let code = system!(file.xClose());
        drop(Box::from_raw((*file.cast::<Handle>()).file));
        code
    }
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    buffer: *const c_void,
    amount: c_int,
    offset: sqlite3_int64,
) -> c_int {
    // SAFETY: an open file of ours; the buffer has `amount` bytes and nobody writes to them during the call.
    unsafe {
        let data = slice::from_raw_parts(buffer.cast::<u8>(), amount.unsigned_abs() as usize);
        let (disk_file, start) = (disk_file(file), offset.unsigned_abs());
        let (fits, answer) = disk_file.ask_write(start, data.len());
        if fits > 0 {
            let fitting = c_int::try_from(fits).unwrap_or(amount);
            let code = system!(file.xWrite(buffer, fitting, offset));
            if code != ffi::SQLITE_OK {
                return code;
            }
            disk_file.wrote(start, &data[..fits]);
        }
        answer.err().unwrap_or(ffi::SQLITE_OK)
    }
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: sqlite3_int64) -> c_int {
    // SAFETY: an open file of ours.
    unsafe {
        let disk_file = disk_file(file);
        if let Err(code) = disk_file.ask(Call::Truncate) {
            return code;
        }
        let code = system!(file.xTruncate(size));
        if code == ffi::SQLITE_OK {
            disk_file.truncated(size.unsigned_abs());
        }
        code
    }
}

/// Does not wait for the real disk: what is safe is a matter of the log.
unsafe extern "C" fn sync(file: *mut sqlite3_file, _: c_int) -> c_int {
    // SAFETY: an open file of ours.
    unsafe { disk_file(file) }.sync().err().unwrap_or(ffi::SQLITE_OK)
}

unsafe extern "C" fn shm_lock(file: *mut sqlite3_file, offset: c_int, count: c_int, flags: c_int) -> c_int {
    // SAFETY: an open file of ours.
    unsafe {
        // SQLite does not expect that letting go can fail.
        if flags & ffi::SQLITE_SHM_LOCK != 0
            && let Err(code) = disk_file(file).ask(Call::LockShared)
        {
            return code;
        }
        system!(file.xShmLock(offset, count, flags))
    }
}

unsafe extern "C" fn shm_barrier(file: *mut sqlite3_file) {
    // SAFETY: an open file of ours.
    unsafe {
        let file = system_file(file);
        if let Some(barrier) = (*(*file).pMethods).xShmBarrier {
            barrier(file);
        }
    }
}

/// # Safety
/// `name` must be null or a C string that lives for as long as the answer is used.
unsafe fn path<'a>(name: *const c_char) -> Option<&'a Path> {
    if name.is_null() {
        return None;
    }
    // SAFETY: as required.
    let name = unsafe { CStr::from_ptr(name) };
    Some(Path::new(OsStr::from_bytes(name.to_bytes())))
}
