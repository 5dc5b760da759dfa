// Optimizers that update in one pass, and loss scaling for float16.
#ifndef MEDFUSION_OPTIM_OPTIM_H_
#define MEDFUSION_OPTIM_OPTIM_H_

#include "medfusion/optim/fused_adam.h"
#include "medfusion/optim/fused_sgd.h"
#include "medfusion/optim/grad_scaler.h"

#endif  // MEDFUSION_OPTIM_OPTIM_H_
