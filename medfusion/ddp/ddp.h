// Everything of this package.
#ifndef MEDFUSION_DDP_DDP_H_
#define MEDFUSION_DDP_DDP_H_

#include "medfusion/ddp/comm_hook.h"        // IWYU pragma: export
#include "medfusion/ddp/ddp_wrapper.h"      // IWYU pragma: export
#include "medfusion/ddp/join.h"             // IWYU pragma: export
#include "medfusion/ddp/sync_batch_norm.h"  // IWYU pragma: export

#endif  // MEDFUSION_DDP_DDP_H_
