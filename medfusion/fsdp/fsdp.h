// Fully sharded data-parallel training (FSDP): everything a program needs.
#ifndef MEDFUSION_FSDP_FSDP_H_
#define MEDFUSION_FSDP_FSDP_H_

#include "medfusion/fsdp/fsdp_wrapper.h"
#include "medfusion/fsdp/full_parameters.h"
#include "medfusion/fsdp/options.h"

#endif  // MEDFUSION_FSDP_FSDP_H_
