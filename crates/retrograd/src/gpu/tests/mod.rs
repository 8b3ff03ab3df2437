mod image_loss;
